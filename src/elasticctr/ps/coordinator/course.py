"""The course of a run with pservers: its counts come from the epoch's ledger, its progressive metrics from reports."""

from __future__ import annotations

from typing import Any

from elasticctr.data.pipeline import Stats
from elasticctr.ps.coordinator.ledger import Ledger
from elasticctr.train.checkpoint import LEDGER
from elasticctr.train.course import Course
from elasticctr.train.job import Job
from elasticctr.train.metrics.label_metrics import LabelMetrics


class LedgerCourse(Course):
    """Guarded by the coordinator's lock."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, in_chunks=True)
        self.ledger: Ledger | None = None  # of the epoch; None before it begins
        self.metrics = LabelMetrics(job.samples.label)  # progressive, of the epoch

    @property
    def epoch_steps(self) -> int:
        return self.ledger.totals().batches if self.ledger else 0

    @property
    def epoch_samples(self) -> int:
        return self.ledger.totals().samples if self.ledger else 0

    def open_ledger(self, ledger: Ledger) -> None:
        """Begins the epoch."""
        self.ledger, self.data = ledger, {"ledger": LEDGER}
        self.metrics = LabelMetrics(self._job.samples.label)

    def end_epoch(self) -> None:
        self._steps_before, self._samples_before = self.step, self.samples
        self.ledger = None
        super().end_epoch()

    def stats(self, known: Stats) -> Stats:
        """What was read in this epoch; `known` are lines that no chunk holds."""
        if self.ledger is None:
            return known
        totals = self.ledger.totals()
        return Stats(totals.lines + known.lines, totals.samples, totals.bad + known.bad)

    def restore_with(self, state: dict[str, Any], ledger: Ledger | None, metrics: bytes | None) -> None:
        """Restores a state. `ledger` is that of the epoch, if it had begun: it may hold less than was reported, so it
        counts. Raises Corruption."""
        self.restore(state)
        self.ledger = ledger
        self.metrics = LabelMetrics(self._job.samples.label)
        if metrics is not None:
            self.metrics.restore(metrics)
