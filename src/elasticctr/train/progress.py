"""The progress of a run on the console: a live line on a terminal, plain lines elsewhere, nothing with --json."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of a run after some batch."""

    epoch: int
    step: int
    samples: int
    loss: float
    auc: float | None
    samples_per_s: float

    def line(self) -> str:
        auc = "     -" if self.auc is None else f"{self.auc:.4f}"
        return (
            f"epoch {self.epoch + 1}  step {self.step:,}  {self.samples:,} samples  {self.samples_per_s:,.0f}/s  "
            f"loss {self.loss:.4f}  auc {auc}  {resident_gib():.2f} GiB"
        )


def resident_gib() -> float:
    """Memory of this process now, or its peak where the system does not say."""
    try:
        with open("/proc/self/statm") as f:  # noqa: PTH123
            return int(f.read().split()[1]) * resource.getpagesize() / 2**30
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class TrainingProgress:
    """Context manager. `show` is called after every batch and decides itself how often to print."""

    def __init__(self, *, quiet: bool = False, every_s: float = 10.0) -> None:
        self._quiet = quiet
        self._every_s = every_s
        self._last = time.monotonic()
        self._console = Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._start = time.monotonic()
        self._done_at_start: int | None = None
        if not quiet and self._console.is_terminal:
            columns = (BarColumn(bar_width=20), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=self._console, refresh_per_second=4)
            self._task = self._bar.add_task("reading…", total=None)

    def __enter__(self) -> TrainingProgress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    @property
    def is_due(self) -> bool:
        """Whether figures handed to `show` now would be seen; working them out costs something."""
        return not self._quiet and time.monotonic() - self._last >= (0.25 if self._bar else self._every_s)

    def show(self, figures: Figures, total_samples: int | None) -> None:
        """`total_samples` of the whole run, if that can be estimated."""
        self._last = time.monotonic()
        line = figures.line() + self._remaining(figures.samples, total_samples)
        if self._bar:
            self._bar.update(self._task, completed=figures.samples, total=total_samples, description=line)
        elif not self._quiet:
            self._print(line)

    def note(self, text: str) -> None:
        """A line that stays: an evaluation, a checkpoint."""
        if self._quiet:
            return
        if self._bar:
            self._bar.console.print(text, highlight=False)
        else:
            self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def _remaining(self, done: int, total: int | None) -> str:
        if self._done_at_start is None:
            self._done_at_start, self._start = done, time.monotonic()
        trained = done - self._done_at_start
        if total is None or trained <= 0:
            return ""
        left_s = (time.monotonic() - self._start) * (total - done) / trained
        return f"  {max(left_s, 0):,.0f} s left"
