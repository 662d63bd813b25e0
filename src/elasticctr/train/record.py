"""The log and the progress line of a run whose steps this process takes: in one process, or as one of several ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from elasticctr.data.pipeline import Stats
from elasticctr.errors import FailedPrecondition
from elasticctr.train.course import Course
from elasticctr.train.events import EventWriter
from elasticctr.train.log_window import LogWindow
from elasticctr.train.metrics.label_metrics import LabelMetrics, describe, values_of
from elasticctr.train.overfitting import Overfitting
from elasticctr.train.progress import Figures, TrainingProgress
from elasticctr.train.result import Result
from elasticctr.train.run_directory import RunDirectory


class Record:
    """A context manager. A silent one, of all ranks but the first, writes and shows nothing."""

    def __init__(
        self,
        run: RunDirectory,
        course: Course,
        *,
        log_every: int,
        quiet: bool,
        is_resumed: bool,
        is_silent: bool = False,
    ) -> None:
        self._run = run
        self._course = course
        self._log_every = log_every
        self._is_silent = is_silent
        self._window = LogWindow()
        self._trained = 0  # samples by this process
        self._stack = ExitStack()
        if not is_silent:
            resume_step = course.step if is_resumed else None
            self._events = self._stack.enter_context(EventWriter(run.events, resume_step=resume_step))
            self._progress = self._stack.enter_context(TrainingProgress(quiet=quiet))

    def __enter__(self) -> Record:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def write(self, event: str, values: dict[str, Any]) -> None:
        at = self._course
        if not self._is_silent:
            self._events.write(event, at.step, at.samples, at.epoch, values)

    def note_data(self, split: str, files: int, stats: Stats) -> None:
        """What was read for a split."""
        self.write("data", {"split": split, "files": files, "rows": stats.samples, "bad_lines": stats.bad})

    def note_evaluation(self, split: str, result: dict[str, Any]) -> None:
        metrics = values_of(result)
        self.write("eval", {"split": split, **metrics})
        self._show(f"{split}: {describe(metrics)}  after {self._course.samples:,} samples")

    def warn(self, found: Overfitting) -> None:
        self.write("warning", found.as_dict())
        self._show(f"warning: {found.text}")

    def begin_window(self) -> None:
        """Starts counting loss and speed from zero."""
        self._window = LogWindow()

    def step(
        self,
        samples: int,
        loss_sum: float,
        metrics: LabelMetrics,
        scale: float,
        total: Callable[[], int | None] = lambda: None,
    ) -> None:
        """After every step. `metrics` are this process's own; `total`: samples of the whole run, if that is known."""
        self._window.add(samples, loss_sum)
        self._trained += samples
        is_due = self._course.step % self._log_every == 0
        figures = self._look(metrics, total, is_wanted=is_due)
        if is_due and figures is not None:
            values = {
                "loss": figures.loss,
                "auc": figures.auc,
                "samples_per_s": figures.samples_per_s,
                "rate_scale": scale,
            }
            self.write("train", values | metrics.figures("auc"))
        if is_due:
            self._window = LogWindow()

    def show_rest(self, metrics: LabelMetrics, total: Callable[[], int | None]) -> None:
        """At an epoch's end: what came after the last line of the log."""
        if self._window.samples:
            self._look(metrics, total)

    def end(self, metrics: dict[str, Any], *, is_finished: bool, began: float) -> Result:
        """Raises FailedPrecondition if nothing was trained on."""
        at, seconds = self._course, time.monotonic() - began
        reason = at.end_reason(is_finished=is_finished)
        self.write("end", {"reason": reason, "seconds": seconds, "samples_per_s": self._trained / seconds})
        if at.samples == 0:
            raise FailedPrecondition("no sample was trained on; check data.train")
        stopped_early = at.schedule.should_stop
        path = self._run.path
        return Result(path, at.step, at.samples, self._trained, seconds, metrics, is_finished, stopped_early)

    def _look(
        self, metrics: LabelMetrics, total: Callable[[], int | None], *, is_wanted: bool = False
    ) -> Figures | None:
        """The figures of this moment, shown if it is time to; None if they are not needed."""
        if self._is_silent or not (is_wanted or self._progress.is_due):
            return None
        at, window = self._course, self._window
        figures = Figures(at.epoch, at.step, at.samples, window.loss, metrics.auc(), window.samples_per_s)
        if self._progress.is_due:
            self._progress.show(figures, total())
        return figures

    def _show(self, text: str) -> None:
        if not self._is_silent:
            self._progress.note(text)
