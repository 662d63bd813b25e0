"""The data of quality.py: Frappe as BARS splits it, and synthetic logs whose attainable AUC is known."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import measure

ZOO = measure.ROOT / "examples" / "zoo"
WORK = measure.WORK / "quality"
FRAPPE = ("frappe_x1_train_reconstructed.csv.gz", "frappe_x1_valid.csv.gz")
# Synthetic logs that are for some models only, and on which only these are run; all others are for every other model.
FAMILIES = {
    "history": ("din", "dien", "bst", "sim"),
    "conversions": ("shared_bottom", "esmm", "mmoe", "ple"),
}


@dataclass(frozen=True)
class Log:
    """A synthetic log. Its last 100,000 rows are for validation."""

    rows: int
    options: tuple[str, ...] = ()
    dense_diff: float = 1.0  # dense floats are divided by it


# Slots of criteo and avazu have 10 values at most, and there are 50 items to be found in histories: what is asked is
# whether a model finds the truth in rows that tell it, not how many rows that takes. Criteo's numbers are logarithms of
# up to 7, which drown embeddings here: a tenth of them is read.
LOGS = {
    "criteo": Log(800_000, ("--max-cardinality", "10"), 10.0),
    "avazu": Log(800_000, ("--max-cardinality", "10")),
    "history": Log(1_000_000, ("--max-cardinality", "50")),
    "conversions": Log(1_000_000),
}
# In place of what examples/zoo has for Frappe, whose ids are rare and learned by heart: far less L2, no dropout, higher
# rates, and no batch norm, whose noise costs more here than it helps. Rates fall to 0.4 of what they were after every
# epoch from the second on, whatever it brought (no gain is as much as 1): waiting for a plateau made slow models stop.
SYNTH_SETTINGS: dict[str, Any] = {
    "sparse.optimizer.learning_rate": 0.003,
    "sparse.optimizer.l2": 0.001,
    "sparse.optimizer.catch_up": 0,
    "sparse.linear_optimizer": {"name": "adam", "learning_rate": 0.003, "l2": 0.0001},
    "model.dropout": 0.0,
    "model.batch_norm": False,
    "model.fs1_context": [],
    "model.fs2_context": [],
    "train.batch_size": 2048,
    "train.epochs": 5,
    "train.plateau": {"metric": "auc", "factor": 0.4, "patience": 1, "min_delta": 1.0, "min_scale": 0.001},
    "train.early_stopping": None,
}
# Without a tower, embeddings are all there is to learn.
SHALLOW: dict[str, Any] = {
    "sparse.optimizer.learning_rate": 0.01,
    "sparse.optimizer.l2": 0.00005,
    "sparse.linear_optimizer": {"name": "adam", "learning_rate": 0.01, "l2": 0.00002},
    "dense.learning_rate": 0.03,
    "train.epochs": 8,
    "train.plateau": {"metric": "auc", "factor": 0.1, "patience": 1, "min_delta": 0.002, "min_scale": 0.001},
    "train.early_stopping": {"metric": "auc", "patience": 2, "min_delta": 0.0002},
}
# Two models that lose more without batch norm and dropout than with them, and then learn fast.
NORMED: dict[str, Any] = {
    "train.epochs": 4,
    "train.plateau": {"metric": "auc", "factor": 0.1, "patience": 1, "min_delta": 0.004, "min_scale": 0.001},
    "train.early_stopping": {"metric": "auc", "patience": 2, "min_delta": 0.0002},
}
SYNTH_SETTINGS_OF: dict[str, dict[str, Any]] = {
    # As fm, and a tower that leaves the pairs to it.
    "deepfm": {
        **{key: value for key, value in SHALLOW.items() if key.startswith("sparse.")},
        "model.hidden": [64, 32],
    },
    "edcn": {"model.batch_norm": True, "model.layers": 1},  # pairs are all there is: more layers only add noise
    "fibinet": {"model.dropout": 0.5},
    "finalmlp": NORMED,
    "finalnet": {**NORMED, "model.batch_norm": True},
    "masknet": {"model.dropout": 0.2, "model.hidden": [64, 32]},
    "xdeepfm": {"model.dropout": 0.2},
    "lr": SHALLOW,
    "fm": SHALLOW,
    "ffm": {**SHALLOW, "sparse.optimizer.learning_rate": 0.004, "train.epochs": 3},
    # The form of the truth: one weight per id and per number, and pairs of slots whose vectors have four numbers.
    "fwfm": {**SHALLOW, "model.dim": 4, "model.linear_part": "feature", "model.dense_fields": False},
}


def make_frappe(folder: Path) -> dict[str, Any]:
    if not all((folder / name).exists() for name in FRAPPE):
        return {}
    target = WORK / "frappe"
    target.mkdir(parents=True, exist_ok=True)
    for name, short in zip(FRAPPE, ("train.csv", "valid.csv"), strict=True):
        if not (target / short).exists():
            part = target / f"{short}.part"
            with gzip.open(folder / name) as source, part.open("wb") as out:
                shutil.copyfileobj(source, out)
            part.replace(target / short)
    return {"data.train.path": str(target / "train.csv"), "data.valid.path": str(target / "valid.csv")}


def models_for(data: str, names: list[str]) -> list[str]:
    if data in FAMILIES:
        return [name for name in names if name in FAMILIES[data]]
    return [name for name in names if not any(name in family for family in FAMILIES.values())]


def make_synth(shape: str, quick: bool) -> tuple[dict[str, Any], float, dict[str, float]]:
    """Settings, and what can be attained: of the first label, and of each."""
    rows = LOGS[shape].rows // (10 if quick else 1)
    files = LOGS[shape].rows // 100_000
    log = WORK / f"{shape}-{rows}{''.join(LOGS[shape].options)}-{LOGS[shape].dense_diff:g}"
    # The configurations of families are for their sets, and say how wide embeddings are.
    schema = ZOO / f"{shape}.yaml" if shape in FAMILIES else log / "schema.yaml"
    if not (log / "valid").exists():
        shutil.rmtree(log, ignore_errors=True)
        options = ["--shape", shape, "--rows", str(rows), "--files", str(files), *LOGS[shape].options]
        call("data", "synth", str(log), *options)
        if LOGS[shape].dense_diff != 1.0:
            divide_dense(log / "schema.yaml", LOGS[shape].dense_diff)
        for part, pattern in (("train", f"part-0000[0-{files - 2}]*"), ("valid", f"part-{files - 1:05d}*")):
            call("data", "cache", str(log / pattern), str(log / part), "--schema", str(schema))
    held_out = json.loads((log / "truth.json").read_text())["files"][-1]
    settings: dict[str, Any] = {
        "schema": yaml.safe_load(schema.read_text()),
        "data.train": {"path": str(log / "train"), "shuffle_rows": 250_000},
        "data.valid": {"path": str(log / "valid")},
    }
    if shape not in FAMILIES:
        settings |= SYNTH_SETTINGS
    return settings, float(held_out["auc"]), {name: float(of["auc"]) for name, of in held_out["labels"].items()}


def divide_dense(path: Path, diff: float) -> None:
    """Rewrites a schema whose dense slots have no transform."""
    schema = yaml.safe_load(path.read_text())
    for slot in schema["slots"]:
        if slot["kind"] == "dense":
            slot |= {"transform": "scale", "min": [0.0] * slot["dim"], "diff": [diff] * slot["dim"]}
    path.write_text(yaml.safe_dump(schema))


def call(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "elasticctr", *arguments, "--json"], check=True, stdout=subprocess.DEVNULL)
