"""Clicks on items in the user's history: learned by sequence models, and served as trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.e2e.conftest import Run, answer
from tests.e2e.parity_server import serve

ITEMS, LONGEST, SERVED = 40, 8, 200


def write_log(path: Path, rows: int, seed: int, *, is_csv: bool) -> None:
    """Click iff the item is among the last LONGEST of the history; some are empty, some longer than is kept."""
    random = np.random.default_rng(seed)
    lines = ["click,user,item,history\n"] if is_csv else []
    for _ in range(rows):
        history = random.integers(0, ITEMS, random.integers(0, 12)).tolist()
        item = int(random.choice(history)) if history and random.random() < 0.5 else int(random.integers(0, ITEMS))
        click, user = int(item in history[-LONGEST:]), random.integers(0, 50)
        if is_csv:
            lines.append(f"{click},u{user},i{item},{'|'.join(f'i{value}' for value in history)}\n")
        else:
            values = "".join(f" history:i{value}" for value in history)
            lines.append(f"click:{click} user:u{user} item:i{item}{values}\n")
    path.write_text("".join(lines))


def write_job(folder: Path, model: dict[str, Any], format: str = "slot") -> Path:
    is_csv = format == "csv"
    for name, rows, seed in (("train", 12_000, 1), ("valid", 2_000, 2)):
        write_log(folder / f"{name}.{format}", rows, seed, is_csv=is_csv)
    history: dict[str, Any] = {"name": "history", "pooling": "none", "max_values": LONGEST, "target": "item"}
    slots = [{"name": "user"}, {"name": "item"}, history | ({"separator": "|"} if is_csv else {})]
    job = {
        "run_dir": str(folder / "run"),
        "schema": {"format": format, "slots": [{**slot, "values": "string"} for slot in slots]},
        "data": {"train": str(folder / f"train.{format}"), "valid": str(folder / f"valid.{format}")},
        "model": {"dim": 8, "hidden": [32], **model},
        "dense": {"learning_rate": 0.01},
        "sparse": {"optimizer": {"name": "adam", "learning_rate": 0.01}, "initializer": {"low": -0.3, "high": 0.3}},
        "train": {"batch_size": 200, "epochs": 3, "threads": 1},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


MODELS: list[dict[str, Any]] = [
    {"name": "din", "attention_hidden": [16]},
    {"name": "dien"},
    {"name": "bst", "head_dim": 8, "feed_forward": 16, "readout": "target"},
    {"name": "sim", "k": 4, "head_dim": 8},
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("model", "format"),
    [*(pytest.param(m, "slot", id=m["name"]) for m in MODELS), pytest.param(MODELS[0], "csv", id="csv")],
)
def test_offline_is_served(invoke: Run, tmp_path: Path, model: dict[str, Any], format: str) -> None:
    result = answer(invoke("train", write_job(tmp_path, model, format), "--json"))
    assert result["metrics"]["valid"]["auc"] > 0.85
    run, repo = Path(result["run_dir"]), str(tmp_path / "repo")
    answer(invoke("predict", run, "--out", tmp_path / "scores.txt", "--json"))
    offline = np.loadtxt(tmp_path / "scores.txt", dtype=np.float32)[:SERVED]
    answer(invoke("publish", run, "--repo", repo, "--model", "m", "--json"))
    answer(invoke("versions", "verify", f"{repo}/m", "--json"))
    samples = read_samples(tmp_path / f"valid.{format}", format)[:SERVED]
    assert any("history" not in sample for sample in samples)
    assert any(len(sample.get("history", [])) > LONGEST for sample in samples)
    with serve(tmp_path, repo, ["m"]) as servers:
        got = servers.post("/v1/models/m:predict", {"samples": samples})
        close: dict[str, Any] = {"atol": 1e-6, "rtol": 2e-6}  # two libraries, float32, attention and layer norm
        np.testing.assert_allclose(np.array(got["scores"]).reshape(-1), offline, **close)
        one_by_one = [
            servers.post("/v1/models/m:predict", {"samples": [sample]})["scores"][0] for sample in samples[:20]
        ]
        np.testing.assert_allclose(np.array(one_by_one).reshape(-1), offline[:20], **close)


def read_samples(path: Path, format: str) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    for line in path.read_text().splitlines()[format == "csv" :]:
        if format == "csv":
            _, user, item, history = line.split(",")
            values = [value for value in history.split("|") if value]
        else:
            cells = [cell.split(":") for cell in line.split()]
            user, item = (value for name, value in cells if name in ("user", "item"))
            values = [value for name, value in cells if name == "history"]
        samples.append({"user": user, "item": item} | ({"history": values} if values else {}))
    return samples


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pservers_train_it(elasticctr: Run, tmp_path: Path) -> None:
    job = write_job(tmp_path, MODELS[0])
    many = ("--on", "local", "--pservers", "2", "--trainers", "2", "--set", "cluster.chunk_mib=1")
    result = answer(elasticctr("train", job, *many, "--json", timeout_s=400))
    assert result["metrics"]["valid"]["auc"] > 0.85
    evaluated = answer(elasticctr("eval", result["run_dir"], "--json"))
    assert evaluated["auc"] == pytest.approx(result["metrics"]["valid"]["auc"], abs=1e-6)
