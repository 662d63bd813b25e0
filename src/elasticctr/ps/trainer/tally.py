"""What a trainer has done since it last reported, and since it started."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr.ps.trainer.leases import ChunkEnd, ChunkLease, LeasedBatch
from elasticctr.ps.trainer.reporting import Reporter
from elasticctr.ps.trainer.strategies.strategy import Outcome
from elasticctr.train.learner import Learner

_REPORT_S = 5.0


class TrainerTally:
    """Batches and samples are counted from the start of a chunk, loss and metrics from the last report on."""

    def __init__(self, learner: Learner, batch_size: int) -> None:
        self._learner = learner
        self._batch_size = batch_size
        self._lease: ChunkLease | None = None
        self.all_samples = self.all_batches = self.chunks = 0
        self._began = self._reported = time.monotonic()
        self._batches = self._samples = 0  # of the chunk at hand
        self._loss_sum = 0.0
        self._learner.clear_metrics()

    def add(self, work: LeasedBatch, outcome: Outcome) -> None:
        batch = work.item.batch
        self._count(work)
        self._loss_sum += outcome.loss_sum
        self._learner.observe(outcome.logits, batch)
        self.all_samples += len(batch)
        self.all_batches += 1

    def add_scores(self, work: LeasedBatch, logits: NDArray[np.float32], groups: NDArray[np.uint64] | None) -> None:
        batch = work.item.batch
        self._count(work)
        self._learner.metrics.update(logits, batch.labels, batch.weights, groups)

    def report_if_due(self, reporter: Reporter, lease: ChunkLease, lease_s: float) -> None:
        # An evaluation is reported once, whole: a part of it would count twice if another trainer takes it over.
        if time.monotonic() - self._reported >= min(_REPORT_S, lease_s / 4):
            if lease.kind == "train":
                self.report(reporter, lease)
            else:
                self._reported = time.monotonic()

    def report(self, reporter: Reporter, lease: ChunkLease) -> None:
        if lease.kind == "train" and lease is self._lease:
            reporter.progress(lease, self._body(), self._take_metrics())

    def report_done(self, reporter: Reporter, end: ChunkEnd) -> None:
        self._batches, self._samples = end.batches, end.stats.samples
        lines = {"lines": end.stats.lines, "bad": end.stats.bad, "examples": list(end.stats.examples)}
        reporter.done(end.lease, {**self._body(), **lines}, self._take_metrics())
        self.chunks += 1
        self._lease, self._batches, self._samples = None, 0, 0

    def forget(self) -> None:
        """Drops what was not reported."""
        self._take_metrics()
        self._lease, self._batches, self._samples = None, 0, 0

    def figures(self) -> dict[str, Any]:
        """For the table of roles."""
        seconds = time.monotonic() - self._began
        return {
            "samples": self.all_samples,
            "batches": self.all_batches,
            "chunks": self.chunks,
            "samples_per_s": round(self.all_samples / max(seconds, 1e-9), 1),
        }

    def _count(self, work: LeasedBatch) -> None:
        if work.lease is not self._lease:
            # Batches before its first one were applied by someone else; only a chunk's last is not full.
            self._lease, self._samples = work.lease, work.batch * self._batch_size
        self._samples += len(work.item.batch)
        self._batches = work.batch + 1

    def _body(self) -> dict[str, Any]:
        return {"batches": self._batches, "samples": self._samples, "loss_sum": self._loss_sum}

    def _take_metrics(self) -> bytes:
        self._loss_sum = 0.0
        self._reported = time.monotonic()
        return self._learner.metrics.take()
