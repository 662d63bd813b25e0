"""From a log to an evaluated, checkpointed model, using only the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Run, answer


def test_train_eval_predict_report(elasticctr: Run, invoke: Run, job: Path, log: Path, tmp_path: Path) -> None:
    result = answer(elasticctr("train", job, "--json"))
    run = Path(result["run_dir"])
    assert result["finished"] and result["samples"] == pytest.approx(32000, rel=0.02)
    truth = json.loads((log / "truth.json").read_text())
    assert 0.6 < result["metrics"]["valid"]["auc"] <= truth["auc"] + 0.02
    for name in ("job.yaml", "environment.json", "events.jsonl", "metrics.json", "report.html"):
        assert (run / name).stat().st_size > 0, name
    assert {p.name for p in (run / "plots").iterdir()} >= {"loss.png", "auc.png", "calibration.png", "roc.png"}

    evaluated = answer(invoke("eval", run, "--json"))
    assert evaluated["auc"] == pytest.approx(max(_valid_aucs(run)), abs=1e-9)

    text, parquet = tmp_path / "scores.txt", tmp_path / "scores.parquet"
    assert answer(invoke("predict", run, "--out", text, "--json"))["rows"] == evaluated["samples"]
    assert answer(elasticctr("predict", run, "--out", parquet, "--json"))["rows"] == evaluated["samples"]
    import pyarrow.parquet as pq
    from sklearn.metrics import roc_auc_score

    table = pq.read_table(parquet)
    scores = [float(line) for line in text.read_text().splitlines()]
    assert scores == pytest.approx(table["score"].to_pylist(), rel=1e-6)
    assert roc_auc_score(table["label"], table["score"]) == pytest.approx(evaluated["auc"], abs=1e-5)


def _valid_aucs(run: Path) -> list[float]:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [e["auc"] for e in events if e["event"] == "eval" and e["split"] == "valid"]


def _start(job: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "elasticctr", "train", str(job), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _wait_for_checkpoint(run: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while not list(run.glob("checkpoints/step-*/manifest.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


LONG = ("--set", "train.epochs=4", "--set", "train.checkpoint_every=9")


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_stopped_run_resumes_to_the_same_numbers(
    elasticctr: Run, invoke: Run, job: Path, tmp_path: Path, how: signal.Signals
) -> None:
    whole = answer(elasticctr("train", job, *LONG, "--run-dir", tmp_path / "whole", "--json"))

    cut = tmp_path / "cut"
    process = _start(job, *LONG, "--run-dir", str(cut))
    _wait_for_checkpoint(cut, process)
    os.kill(process.pid, how)
    _, errors = process.communicate(timeout=200)
    if how == signal.SIGINT:
        assert process.returncode == 130, errors
        assert "--resume" in errors and "Traceback" not in errors
    resumed = answer(elasticctr("train", job, *LONG, "--run-dir", cut, "--resume", "--json"))
    assert resumed["steps"] == whole["steps"] and resumed["samples"] == whole["samples"]
    assert resumed["metrics"] == whole["metrics"]
    tables = [sorted(run.glob("checkpoints/step-*"))[-1] / "main.table" for run in (tmp_path / "whole", cut)]
    a, b = (invoke("eval", table.parent, "--json").stdout for table in tables)
    assert a == b


def test_training_stops_early_and_keeps_the_best(invoke: Run, job: Path) -> None:
    stopping = (
        "--set",
        "train.epochs=30",
        "--set",
        "train.early_stopping.patience=1",
        "--set",
        "sparse.optimizer.learning_rate=0.05",
    )
    result = answer(invoke("train", job, *stopping, "--json"))
    assert result["stopped_early"]
    run = Path(result["run_dir"])
    evaluated = answer(invoke("eval", run, "--json"))
    assert evaluated["auc"] == pytest.approx(max(_valid_aucs(run)), abs=1e-9)


def test_from_python_in_ten_lines(log: Path, tmp_path: Path) -> None:
    from elasticctr.config import load_yaml
    from elasticctr.run import Job, train

    job = Job(
        run_dir=str(tmp_path / "run"),
        schema=load_yaml(log / "schema.yaml"),
        data={"train": str(log / "part-*")},
        model={"name": "fm", "dim": 4},
        train={"batch_size": 512, "steps": 5},
    )
    result = train(job, quiet=True)
    assert result.samples == 2560 and result.metrics["train"]["auc"] is not None
