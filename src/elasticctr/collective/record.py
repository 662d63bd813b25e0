"""What a collective run leaves for people: rank 0 writes events and shows progress, the others are silent."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from elasticctr.train.events import EventWriter
from elasticctr.train.metrics.label_metrics import LabelMetrics
from elasticctr.train.progress import Figures, TrainingProgress


@dataclass(slots=True)
class RunPlace:
    """Where a run is; the same on every rank."""

    epoch: int = 0
    step: int = 0
    samples: int = 0
    epoch_samples: int = 0
    epoch_steps: int = 0
    refused: int = 0  # samples left out because their gradients were not finite


class Record:
    def __init__(self, events: Path, *, is_silent: bool, quiet: bool, resume_step: int | None, log_every: int) -> None:
        self._is_silent = is_silent
        self._log_every = log_every
        self._stack = ExitStack()
        self._samples, self._loss, self._since = 0, 0.0, time.monotonic()
        if not is_silent:
            self._events = self._stack.enter_context(EventWriter(events, resume_step=resume_step))
            self._progress = self._stack.enter_context(TrainingProgress(quiet=quiet))

    def __enter__(self) -> Record:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def write(self, event: str, at: RunPlace, values: dict[str, Any]) -> None:
        if not self._is_silent:
            self._events.write(event, at.step, at.samples, at.epoch, values)

    def note(self, text: str) -> None:
        if not self._is_silent:
            self._progress.note(text)

    def step(self, at: RunPlace, samples: int, loss_sum: float, metrics: LabelMetrics, scale: float) -> None:
        """After every step. `metrics` are the rank's own, on its part of the samples."""
        self._samples += samples
        self._loss += loss_sum
        is_due = at.step % self._log_every == 0
        if self._is_silent or not (is_due or self._progress.is_due):
            return
        speed = self._samples / max(time.monotonic() - self._since, 1e-9)
        loss = self._loss / max(self._samples, 1)
        auc = metrics.auc()
        if self._progress.is_due:
            self._progress.show(Figures(at.epoch, at.step, at.samples, loss, auc, speed), None)
        if is_due:
            values = {"loss": loss, "auc": auc, "samples_per_s": speed, "rate_scale": scale}
            self.write("train", at, values | metrics.figures("auc"))
            self._samples, self._loss, self._since = 0, 0.0, time.monotonic()
