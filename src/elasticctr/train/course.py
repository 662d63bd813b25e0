"""Where a run is and what it has decided so far: what a checkpoint's trainer.json holds.

Every kind of run keeps the same facts under the same names, so that each can resume from another's checkpoints.
"""

from __future__ import annotations

from typing import Any

from elasticctr.errors import Corruption
from elasticctr.train.job import Job
from elasticctr.train.metrics.label_metrics import values_of
from elasticctr.train.overfitting import Overfitting
from elasticctr.train.schedule import Schedule


class Course:
    """Not synchronised. `in_chunks`: the epoch is read in chunks, and a ledger beside trainer.json holds the position
    in it."""

    def __init__(self, job: Job, *, in_chunks: bool = False) -> None:
        self._job = job
        self._in_chunks = in_chunks
        self.epoch = 0
        self.data: dict[str, Any] | None = None  # position in the epoch's data; None between epochs
        self.schedule = Schedule(job.train)
        self.evaluations: dict[str, Any] = {}  # by split
        self._steps_before = self._samples_before = 0  # in earlier epochs
        self._epoch_steps = self._epoch_samples = 0

    @property
    def step(self) -> int:
        """Batches, of all trainers together."""
        return self._steps_before + self.epoch_steps

    @property
    def samples(self) -> int:
        return self._samples_before + self.epoch_samples

    @property
    def epoch_steps(self) -> int:
        return self._epoch_steps

    @property
    def epoch_samples(self) -> int:
        return self._epoch_samples

    @property
    def rate_scale(self) -> float:
        """The factor on every learning rate, warm-up aside."""
        return self.schedule.scale

    @property
    def is_over(self) -> bool:
        """Whether training ends before its last epoch does."""
        steps = self._job.train.steps
        return (steps is not None and self.step >= steps) or self.schedule.should_stop

    @property
    def is_trained(self) -> bool:
        return self.epoch >= self._job.train.epochs or self.is_over

    def passed(self, every: int | None, since: int) -> bool:
        """Whether the run has passed a multiple of `every` batches after step `since`."""
        return every is not None and self.step // every > since // every

    def begin_epoch(self) -> None:
        self._steps_before, self._samples_before = self.step, self.samples
        self._epoch_steps = self._epoch_samples = 0

    def count(self, samples: int) -> None:
        """One more batch."""
        self._epoch_steps += 1
        self._epoch_samples += samples

    def end_epoch(self) -> None:
        """The next one has not begun."""
        self.epoch += 1
        self.data = None

    def take_evaluation(self, result: dict[str, Any], train_logloss: float | None) -> tuple[bool, Overfitting | None]:
        """Takes in a result on the validation data. Returns whether it is the best so far, and what is to be warned
        of."""
        values = values_of(result)
        is_best = self.schedule.see_evaluation(values)
        epoch = self.epoch if self.data is None else self.epoch + 1
        found = self.schedule.overfitting.see(epoch, train_logloss, values)
        if is_best or "valid" not in self.evaluations:  # a run reports the evaluation of its best state
            self.evaluations["valid"] = result
        return is_best, found

    def end_reason(self, *, is_finished: bool) -> str:
        """For the run's log."""
        if not is_finished:
            return "interrupted"
        return "early stopping" if self.schedule.should_stop else "finished"

    def state(self, identity: dict[str, Any]) -> dict[str, Any]:
        """For trainer.json."""
        steps = {"epoch_steps": self.epoch_steps} if self._in_chunks else {}
        return {
            "epoch": self.epoch,
            "step": self.step,
            "samples": self.samples,
            "epoch_samples": self.epoch_samples,
            **steps,
            "data": self.data,
            "schedule": self.schedule.state(),
            "valid": self.evaluations.get("valid"),
            "identity": identity,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Raises Corruption."""
        try:
            self.epoch, self.data = int(state["epoch"]), state["data"]
            self._steps_before, self._samples_before = int(state["step"]), int(state["samples"])
            self._epoch_steps = self._epoch_samples = 0
            if self.data is not None:
                self._epoch_steps = int(state.get("epoch_steps", 0))
                self._epoch_samples = int(state["epoch_samples"])
                self._steps_before -= self._epoch_steps
                self._samples_before -= self._epoch_samples
            self.schedule.restore(state["schedule"])
            self.evaluations = {} if state["valid"] is None else {"valid": state["valid"]}
        except (KeyError, TypeError, ValueError) as e:
            raise Corruption(
                f"trainer.json makes no sense: {type(e).__name__}: {e}; take an older checkpoint"
            ) from None
