"""Where a run with pservers is, and what it has decided so far: what its checkpoints hold besides tables and dense.

The same facts, under the same names, as a run in one process keeps in trainer.json.
"""

from __future__ import annotations

from typing import Any

from elasticctr.data.pipeline import Stats
from elasticctr.errors import Corruption
from elasticctr.ps.coordinator.ledger import Ledger
from elasticctr.train.checkpoint import LEDGER
from elasticctr.train.job import Job
from elasticctr.train.metrics.label_metrics import LabelMetrics
from elasticctr.train.schedule import Schedule


class Course:
    """Not synchronised: the coordinator's lock holds for it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.epoch = 0
        self.ledger: Ledger | None = None  # of the epoch; None before it begins
        self.metrics = LabelMetrics(job.samples.label)  # progressive, of the epoch
        self.schedule = Schedule(job.train)
        self.evaluations: dict[str, Any] = {}  # by split
        self._steps_before = 0  # batches and samples of the epochs before
        self._samples_before = 0

    @property
    def step(self) -> int:
        """Batches over all trainers."""
        return self._steps_before + (self.ledger.totals().batches if self.ledger else 0)

    @property
    def samples(self) -> int:
        return self._samples_before + self.epoch_samples

    @property
    def epoch_samples(self) -> int:
        return self.ledger.totals().samples if self.ledger else 0

    @property
    def rate_scale(self) -> float:
        """The factor on every learning rate, warm-up aside."""
        return float(self.schedule.state()["scale"])

    @property
    def is_over(self) -> bool:
        """Whether training ends before its last epoch does."""
        steps = self._job.train.steps
        return (steps is not None and self.step >= steps) or self.schedule.should_stop

    @property
    def is_trained(self) -> bool:
        return self.epoch >= self._job.train.epochs or self.is_over

    def begin_epoch(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.metrics = LabelMetrics(self._job.samples.label)

    def end_epoch(self) -> None:
        """The next one has not begun."""
        self._steps_before, self._samples_before = self.step, self.samples
        self.ledger = None
        self.epoch += 1

    def stats(self, known: Stats) -> Stats:
        """What was read in this epoch; `known` are lines that no chunk holds."""
        if self.ledger is None:
            return known
        totals = self.ledger.totals()
        return Stats(totals.lines + known.lines, totals.samples, totals.bad + known.bad)

    def state(self, identity: dict[str, Any]) -> dict[str, Any]:
        """For trainer.json."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "samples": self.samples,
            "epoch_samples": self.epoch_samples,
            "epoch_steps": self.ledger.totals().batches if self.ledger else 0,
            # A position in the middle of an epoch is the ledger's: chunks are not read in one order.
            "data": None if self.ledger is None else {"ledger": LEDGER},
            "schedule": self.schedule.state(),
            "valid": self.evaluations.get("valid"),
            "identity": identity,
        }

    def restore(self, state: dict[str, Any], ledger: Ledger | None, metrics: bytes | None) -> None:
        """Takes up a state; `ledger` is that of the epoch, if it had begun. Raises Corruption."""
        try:
            self.epoch = int(state["epoch"])
            self.ledger = None
            self._steps_before, self._samples_before = int(state["step"]), int(state["samples"])
            if state["data"] is not None and ledger is not None:
                # Counted from the ledger itself: what it holds may be less than was reported.
                self._samples_before -= int(state["epoch_samples"])
                self._steps_before -= int(state.get("epoch_steps", 0))
            self.ledger = ledger
            self.schedule.restore(state["schedule"])
            self.evaluations = {} if state["valid"] is None else {"valid": state["valid"]}
        except (KeyError, TypeError, ValueError) as e:
            raise Corruption(
                f"trainer.json makes no sense: {type(e).__name__}: {e}; take an older checkpoint"
            ) from None
        self.metrics = LabelMetrics(self._job.samples.label)
        if metrics is not None:
            self.metrics.restore(metrics)
