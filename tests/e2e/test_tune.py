"""A search over a real job: every trial is a run, a killed search resumes, and the best job trains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Run, answer, assert_clean_failure


def write(job: Path, **changes: object) -> Path:
    settings = yaml.safe_load(job.read_text())
    settings["train"]["epochs"] = 3
    job.write_text(yaml.safe_dump(settings))
    tune = {
        "job": job.name,
        "study_dir": str(job.parent / "study"),
        "trials": 3,
        "space": {
            "model.hidden": {"choice": [[8], [16, 8]]},
            "dense.learning_rate": {"log": [1e-3, 1e-2]},
        },
        **changes,
    }
    path = job.parent / "tune.yaml"
    path.write_text(yaml.safe_dump(tune))
    return path


def test_mistakes_end_the_search_at_once(elasticctr: Run, job: Path) -> None:
    settings = yaml.safe_load(job.read_text())
    del settings["data"]["valid"]
    job.write_text(yaml.safe_dump(settings))
    assert_clean_failure(elasticctr("tune", write(job)), 15, "data.valid")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_killed_search_resumes(elasticctr: Run, job: Path) -> None:
    path = write(job, repeats=2)
    study = job.parent / "study"
    process = subprocess.Popen([sys.executable, "-m", "elasticctr", "tune", str(path)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while not list(study.glob("trials/0001/seed-0/checkpoints/step-*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert_clean_failure(elasticctr("tune", path), 13, "--resume")
    assert_clean_failure(elasticctr("tune", path, "--resume", "--set", "metric=logloss"), 15, "metric")
    found = answer(elasticctr("tune", path, "--resume", "--json", timeout_s=300))
    assert found["finished"] and found["trials"] == {"complete": 3, "pruned": 0, "failed": 0}
    summary = json.loads((study / "study.json").read_text())
    for trial in summary["trials"]:
        runs = sorted((study / "trials" / f"{trial['number']:04d}").glob("seed-*"))
        aucs = [json.loads((run / "metrics.json").read_text())["valid"]["auc"] for run in runs]
        assert [run.name for run in runs] == ["seed-0", "seed-1"]
        assert trial["score"] == pytest.approx(sum(aucs) / 2) and aucs[0] != aucs[1]
        is_best = trial["number"] == found["best"]["number"]
        assert all((run / "checkpoints").exists() == is_best for run in runs)
    assert found["best"]["score"] == max(t["score"] for t in summary["trials"])
    assert (study / "report.html").stat().st_size > 10_000
    # The best job is a job, and gives what the trial gave.
    best = answer(elasticctr("train", study / "best.yaml", "--run-dir", job.parent / "again", "--json"))
    run = study / "trials" / f"{found['best']['number']:04d}" / "seed-0"
    assert best["metrics"]["valid"]["auc"] == json.loads((run / "metrics.json").read_text())["valid"]["auc"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_space_that_never_works_is_said(elasticctr: Run, job: Path) -> None:
    path = write(job, space={"model.hidden": {"choice": [["wide"], "deep", 0]}}, trials=10)
    assert_clean_failure(elasticctr("tune", path, timeout_s=200), 15, "first 3 trials failed", "hidden")
