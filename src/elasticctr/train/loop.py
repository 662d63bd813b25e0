"""The loop of every run: epochs, evaluations, the best state, checkpoints, the test and the end.

It decides what happens when. How it is done is the executor's: in one process (train/trainer.py), by ranks in step
(collective/run.py), or by trainers and pservers (ps/coordinator/executor.py). The loop knows neither learners nor
processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

from elasticctr.train.checkpoint import Checkpoint, best_checkpoint
from elasticctr.train.course import Course
from elasticctr.train.job import Job
from elasticctr.train.overfitting import Overfitting
from elasticctr.train.run_directory import RunDirectory


class Executor(ABC):
    @property
    @abstractmethod
    def course(self) -> Course: ...

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while the loop changes the course."""
        return nullcontext()

    @property
    def is_checkpoint_due(self) -> bool:
        """False if the executor writes them beside training."""
        return False

    @property
    def is_interrupted(self) -> bool:
        """Whether the run is to end now, with a checkpoint."""
        return False

    @abstractmethod
    def train_epoch(self) -> Generator[None, None, None]:
        """Trains until the epoch's data is used up or the course is over. Yields whenever the loop may evaluate or
        write a checkpoint; closing the generator stops training."""

    @abstractmethod
    def evaluate(self, split: str) -> dict[str, Any]:
        """Metrics of the data of a split, curves included. Notes them in the run's log."""

    @abstractmethod
    def train_logloss(self) -> float | None:
        """The progressive loss of the epoch so far."""

    @abstractmethod
    def warn(self, found: Overfitting) -> None: ...

    @abstractmethod
    def checkpoint(self) -> Path:
        """A checkpoint of now. One of this step that was written before is enough."""

    @abstractmethod
    def note_best(self, checkpoint: Path) -> None: ...

    @abstractmethod
    def end_epoch(self) -> None:
        """After the epoch's evaluation, before its checkpoint."""

    @abstractmethod
    def publish(self) -> None:
        """After the epoch's checkpoint."""

    @abstractmethod
    def finish(self) -> None:
        """After the last epoch: loads the best state, which is tested and published last."""


class RunLoop:
    def __init__(self, job: Job, executor: Executor) -> None:
        self._train = job.train
        self._executor = executor
        self._has_valid = job.data.valid is not None
        self._has_test = job.data.test is not None

    def run(self) -> bool:
        """Whether the run is trained to its end and tested; False: interrupted, with a checkpoint written."""
        executor = self._executor
        while not executor.course.is_trained:
            if not self._run_epoch():
                return False
        if self._has_valid and "valid" not in executor.course.evaluations:
            self._evaluate_and_keep()
        executor.finish()
        if self._has_test:
            executor.course.evaluations["test"] = executor.evaluate("test")
        return True

    def _run_epoch(self) -> bool:
        executor, every = self._executor, self._train.eval_every
        evaluated = executor.course.step
        with closing(executor.train_epoch()) as steps:
            for _ in steps:
                if self._has_valid and executor.course.passed(every, evaluated):
                    self._evaluate_and_keep()
                    evaluated = executor.course.step
                if executor.is_checkpoint_due:
                    executor.checkpoint()
                if executor.is_interrupted:
                    executor.checkpoint()
                    return False
        is_best = self._has_valid and not every and self._evaluate()
        executor.end_epoch()
        path = executor.checkpoint()
        if is_best:
            executor.note_best(path)
        executor.publish()
        return not executor.is_interrupted

    def _evaluate_and_keep(self) -> None:
        if self._evaluate():
            self._executor.note_best(self._executor.checkpoint())

    def _evaluate(self) -> bool:
        """Whether the result on the validation data is the best so far."""
        executor = self._executor
        result, train_logloss = executor.evaluate("valid"), executor.train_logloss()
        with executor.lock:
            is_best, found = executor.course.take_evaluation(result, train_logloss)
        if found is not None:
            executor.warn(found)
        return is_best


def find_better(run: RunDirectory, course: Course) -> Checkpoint | None:
    """The checkpoint of the best state, if the run has left that behind."""
    best = best_checkpoint(run.path)
    return None if best is None or best.step == course.step else best
