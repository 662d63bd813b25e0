"""A run directory keeps two runs apart, and what evaluations find beside what training found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticctr.errors import AlreadyExists, DataError, NotFound
from elasticctr.train.job import Job
from elasticctr.train.run_directory import RunDirectory


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job.model_validate(
        {
            "run_dir": str(tmp_path / "run"),
            "schema": {"slots": [{"name": "user"}]},
            "data": {"train": "log"},
            "model": {"name": "lr"},
        }
    )


def test_a_job_is_read_back_as_it_was_begun(job: Job) -> None:
    run = RunDirectory(job.run_dir)
    run.begin(job, resume=False)
    assert run.load_job() == job
    assert json.loads(run.environment.read_text())


def test_a_run_that_left_nothing_may_begin_again(job: Job) -> None:
    run = RunDirectory(job.run_dir)
    run.begin(job, resume=False)
    assert not run.is_used
    run.begin(job, resume=False)


def test_a_run_with_results_is_only_resumed(job: Job) -> None:
    run = RunDirectory(job.run_dir)
    run.begin(job, resume=False)
    run.write_metrics({"valid": {"auc": 0.5}})
    with pytest.raises(AlreadyExists, match="--resume"):
        run.begin(job, resume=False)
    run.begin(job, resume=True)
    assert json.loads(run.metrics.read_text()) == {"valid": {"auc": 0.5}}


def test_metrics_of_a_split_replace_their_own_only(job: Job) -> None:
    run = RunDirectory(job.run_dir)
    run.path.mkdir()
    run.add_metrics("valid", {"auc": 0.5})
    run.add_metrics("test", {"auc": 0.6})
    run.add_metrics("valid", {"auc": 0.7})
    assert json.loads(run.metrics.read_text()) == {"valid": {"auc": 0.7}, "test": {"auc": 0.6}}


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_metrics_that_are_damaged_are_left_alone(job: Job, text: str) -> None:
    run = RunDirectory(job.run_dir)
    run.path.mkdir()
    run.metrics.write_text(text)
    with pytest.raises(DataError, match=r"metrics\.json"):
        run.add_metrics("valid", {"auc": 0.5})
    assert run.metrics.read_text() == text


def test_the_run_of_a_checkpoint_is_found(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "step-3"
    assert RunDirectory.of(tmp_path / "run").path == tmp_path / "run"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text("{}")
    assert RunDirectory.of(checkpoint).path == tmp_path / "run"
    with pytest.raises(NotFound, match="run"):
        RunDirectory.of(tmp_path / "run").load_job()
