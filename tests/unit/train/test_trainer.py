"""A run: what early stopping keeps, and a killed run that decides as an undisturbed one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.train.test_overfitting import make_cliff_job

from elasticctr.config import parse_settings
from elasticctr.train.checkpoint import best_checkpoint, open_checkpoint
from elasticctr.train.deterministic import set_deterministic
from elasticctr.train.events import read_events
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.loading import load_learner
from elasticctr.train.result import Result
from elasticctr.train.trainer import Trainer


class Killed(Exception):
    pass


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    yield
    set_deterministic(False)


def make_stopping_job(directory: Path, **train: Any) -> Job:
    directory.mkdir(exist_ok=True)
    settings = {"threads": 1, "batch_size": 100, "epochs": 6, "early_stopping": {"patience": 2}, "deterministic": True}
    job = make_cliff_job(directory, train=settings | {"plateau": {"patience": 1, "factor": 0.5}} | train)
    return job.model_copy(update={"data": job.data.model_copy(update={"test": job.data.valid})})


def run_until(job: Job, step: int, *, resume: bool = False) -> None:
    def die(learner: Learner, at: int, is_epoch_end: bool) -> None:
        if at >= step and not is_epoch_end:
            raise Killed

    with pytest.raises(Killed):
        Trainer(job, quiet=True, on_step=die).run(resume=resume)


def decisions(result: Result) -> dict[str, Any]:
    """Everything a run decided, and what is left of it."""
    newest, best = open_checkpoint(result.run_dir), best_checkpoint(result.run_dir)
    assert best is not None
    evaluations = [(e["step"], e["split"], e["auc"]) for e in read_events(result.run_dir / "events.jsonl", "eval")]
    return {
        "evaluations": list(dict.fromkeys(evaluations)),
        "warnings": {e["text"] for e in read_events(result.run_dir / "events.jsonl", "warning")},
        "best": best.step,
        "schedule": newest.trainer["schedule"],
        "metrics": json.dumps(result.metrics, sort_keys=True, default=str),
        "stopped": (result.step, result.stopped_early),
        "rows": (newest.path / "main.table").read_bytes(),
        "dense": newest.dense.read_bytes(),
    }


def test_after_early_stopping_the_best_state_is_evaluated(tmp_path: Path) -> None:
    result = Trainer(make_stopping_job(tmp_path), quiet=True).run()
    events = read_events(result.run_dir / "events.jsonl", "eval")
    aucs = {e["step"]: e["auc"] for e in events if e["split"] == "valid"}
    assert result.stopped_early and result.step == max(aucs) == 120
    best = max(aucs, key=lambda step: aucs[step])
    assert best == 40 and best_checkpoint(result.run_dir).step == best  # type: ignore[union-attr]
    # Test data are the validation data here: the same figure, to the bit, if and only if it is the same state.
    assert result.metrics["valid"]["auc"] == result.metrics["test"]["auc"] == aucs[best]
    learner, _ = load_learner(result.run_dir)
    assert learner.sparse.tables[0].stats().steps == best


@pytest.mark.parametrize(
    ("train", "kills"),
    [
        pytest.param({"checkpoint_every": 20}, (37, 90), id="checkpoints at the epochs' ends too"),
        pytest.param({"checkpoint_every": 7, "eval_every": 15}, (20, 46), id="evaluations in the middle"),
    ],
)
def test_a_killed_run_decides_as_one_that_was_not(
    tmp_path: Path, train: dict[str, Any], kills: tuple[int, ...]
) -> None:
    whole = Trainer(make_stopping_job(tmp_path / "whole", **train), quiet=True).run()
    job = make_stopping_job(tmp_path / "killed", **train)
    for number, step in enumerate(kills):
        run_until(job, step, resume=number > 0)
    again = Trainer(job, quiet=True).run(resume=True)
    expected, found = decisions(whole), decisions(again)
    assert found.keys() == expected.keys() and expected["warnings"]
    assert [name for name in found if found[name] != expected[name]] == []


def test_dropout_and_running_statistics_go_on_where_a_killed_run_was(tmp_path: Path) -> None:
    """Which units are dropped comes from the saved random state, which does not start again."""
    dense = []
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        train = {"threads": 1, "batch_size": 400, "epochs": 1, "checkpoint_every": 3}
        settings = make_cliff_job(tmp_path / name, train=train).model_dump(mode="json", by_alias=True)
        settings["model"] = {"name": "dnn", "dim": 4, "hidden": [16, 8], "dropout": 0.3, "batch_norm": True}
        job = parse_settings(Job, settings, "job")
        if name == "killed":
            run_until(job, 5)
        result = Trainer(job, quiet=True).run(resume=name == "killed")
        dense.append(open_checkpoint(result.run_dir).dense.read_bytes())
    assert dense[0] == dense[1]
