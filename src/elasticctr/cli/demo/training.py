"""The first half: a click log is made, inspected and learned from; two models against the best attainable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from elasticctr.cli.demo.shell import Shell
from elasticctr.cli.output import print_table

MODELS = ("wide_deep", "deepfm")


def train_models(shell: Shell, directory: Path, rows: int, models: Sequence[str] = MODELS) -> dict[str, Any]:
    log = directory / "log"
    synth = shell.show(
        "data", "synth", str(log), "--rows", str(rows), "--files", "10", "--format", "slot", "--max-cardinality", "1000"
    )  # fmt: skip
    shell.show("data", "inspect", str(log), "--schema", str(log / "schema.yaml"), "--rows", "20000")
    (directory / "job.yaml").write_text(yaml.safe_dump(_job(log), sort_keys=False), encoding="utf-8")
    results = {}
    for name in models:
        run = str(directory / "runs" / name)
        shell.show("train", str(directory / "job.yaml"), "--run-dir", run, "--set", f"model.name={name}")
        results[name] = shell.ask("eval", run)
    attainable = json.loads((log / "truth.json").read_text(encoding="utf-8"))
    summary = {
        "attainable": {"auc": attainable["auc"], "logloss": attainable["logloss"]},
        **{name: {key: results[name][key] for key in ("auc", "logloss", "ne", "copc")} for name in models},
    }
    reports = {name: str(directory / "runs" / name / "report.html") for name in models}
    if not shell.as_json:
        figures = [
            [name, f"{m['auc']:.4f}", f"{m['logloss']:.4f}", f"{m['auc'] / attainable['auc']:.1%}"]
            for name, m in summary.items()
        ]
        print_table("held-out tenth of the log", ["model", "#auc", "#logloss", "#of attainable auc"], figures)
        for path in reports.values():
            shell.say(f"report: {path}")
    return {"models": summary, "reports": reports, "synth": synth}


def _job(log: Path) -> dict[str, Any]:
    return {
        "schema": str((log / "schema.yaml").absolute()),
        "data": {
            "train": {"path": str(log / "part-*"), "fraction": [0.0, 0.8], "shuffle_rows": 100_000},
            "valid": {"path": str(log / "part-*"), "fraction": [0.8, 0.9]},
            "test": {"path": str(log / "part-*"), "fraction": [0.9, 1.0]},
        },
        "model": {"dim": 9, "hidden": [128, 64]},
        "train": {"batch_size": 512, "epochs": 2, "early_stopping": {"patience": 1}},
    }
