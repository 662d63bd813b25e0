"""The run loop with an executor that only notes what it is asked for."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from elasticctr.train.course import Course
from elasticctr.train.job import Job
from elasticctr.train.loop import Executor, RunLoop
from elasticctr.train.overfitting import Overfitting


class Noting(Executor):
    """Epochs of `steps` batches; evaluations give `aucs` in turn."""

    def __init__(self, job: Job, steps: int, aucs: list[float], *, stop_at: int | None = None) -> None:
        self.noted: list[str] = []
        self._job, self._steps, self._aucs, self._stop_at = job, steps, aucs, stop_at
        self._course = Course(job)
        self._saved = 0

    @property
    def course(self) -> Course:
        return self._course

    @property
    def is_checkpoint_due(self) -> bool:
        return self._course.passed(self._job.train.checkpoint_every, self._saved)

    @property
    def is_interrupted(self) -> bool:
        return self._course.step == self._stop_at

    def train_epoch(self) -> Generator[None, None, None]:
        course = self._course
        course.begin_epoch()
        try:
            for _ in range(self._steps):
                course.count(10)
                course.data = {}
                yield
                if course.is_over:
                    return
        finally:
            self.noted.append(f"trained to {course.step}")

    def evaluate(self, split: str) -> dict[str, Any]:
        self.noted.append(f"{split} at {self._course.step}")
        return {"auc": self._aucs.pop(0) if split == "valid" else 0.5, "logloss": 0.5}

    def train_logloss(self) -> float | None:
        return 0.5

    def warn(self, found: Overfitting) -> None:
        raise AssertionError(found)

    def checkpoint(self) -> Path:
        self._saved = self._course.step
        self.noted.append(f"checkpoint at {self._saved}")
        return Path(str(self._saved))

    def note_best(self, checkpoint: Path) -> None:
        self.noted.append(f"best at {checkpoint}")

    def end_epoch(self) -> None:
        if not self._course.is_over:
            self._course.end_epoch()
        self.noted.append(f"epoch {self._course.epoch}")

    def publish(self) -> None:
        self.noted.append("publish")

    def finish(self) -> None:
        self.noted.append("finish")


def make_job(**train: Any) -> Job:
    data = {"train": "a", "valid": "b", "test": "c"}
    return Job.model_validate({"schema": {"slots": [{"name": "user"}]}, "data": data, "train": train})


def test_an_epoch_is_evaluated_then_saved_then_published() -> None:
    executor = Noting(make_job(epochs=2), 3, [0.7, 0.6])
    assert RunLoop(make_job(epochs=2), executor).run()
    first = ["trained to 3", "valid at 3", "epoch 1", "checkpoint at 3", "best at 3", "publish"]
    second = ["trained to 6", "valid at 6", "epoch 2", "checkpoint at 6", "publish"]
    assert executor.noted == [*first, *second, "finish", "test at 6"]
    # What is reported is the evaluation of the best state.
    assert executor.course.evaluations["valid"]["auc"] == 0.7


def test_evaluations_and_checkpoints_in_the_middle_of_an_epoch() -> None:
    job = make_job(epochs=1, eval_every=2, checkpoint_every=3)
    executor = Noting(job, 5, [0.6, 0.7])
    assert RunLoop(job, executor).run()
    assert executor.noted == [
        *("valid at 2", "checkpoint at 2", "best at 2", "checkpoint at 3"),
        *("valid at 4", "checkpoint at 4", "best at 4"),
        *("trained to 5", "epoch 1", "checkpoint at 5", "publish", "finish", "test at 5"),
    ]


@pytest.mark.parametrize(
    ("train", "step"),
    [
        pytest.param({"steps": 4}, 4, id="steps"),
        pytest.param({"eval_every": 1, "early_stopping": {"patience": 2}}, 3, id="early stopping"),
    ],
)
def test_training_ends_before_its_last_epoch(train: dict[str, Any], step: int) -> None:
    job = make_job(epochs=9, **train)
    executor = Noting(job, 3, [0.7, 0.6, 0.6, 0.5, 0.5])
    assert RunLoop(job, executor).run()
    assert executor.course.step == step and executor.noted[-1] == f"test at {step}"


def test_an_interrupted_run_saves_and_stops_training() -> None:
    job = make_job(epochs=2)
    executor = Noting(job, 3, [], stop_at=2)
    assert not RunLoop(job, executor).run()
    assert executor.noted == ["checkpoint at 2", "trained to 2"]


def test_a_course_continues_from_its_state() -> None:
    course, again = Course(make_job(epochs=3)), Course(make_job(epochs=3))
    course.begin_epoch()
    course.count(10)
    course.end_epoch()
    course.begin_epoch()
    course.count(7)
    course.data = {"offset": 3}
    again.restore(course.state({"model": "m"}))
    assert again.state({"model": "m"}) == course.state({"model": "m"})
    assert (again.epoch, again.step, again.samples, again.epoch_samples) == (1, 2, 17, 7)
