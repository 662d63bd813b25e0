"""What a person sees while a run trains: a live line on a terminal, plain lines elsewhere, nothing with --json."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn


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

    def __init__(self, total_samples: int | None, *, quiet: bool = False, every_s: float = 10.0) -> None:
        self._quiet = quiet
        self._every_s = every_s
        self._last = time.monotonic()
        self._console = Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._total = total_samples
        self._start = time.monotonic()
        if not quiet and self._console.is_terminal:
            columns = [SpinnerColumn(), TextColumn("{task.description}")]
            if total_samples:
                columns += [BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
            self._bar = Progress(*columns, console=self._console, refresh_per_second=4)
            self._task = self._bar.add_task("reading…", total=total_samples)

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

    def show(self, figures: Figures, done_samples: int) -> None:
        self._last = time.monotonic()
        if self._bar:
            self._bar.update(self._task, completed=done_samples, description=figures.line())
        elif not self._quiet:
            self._print(figures.line() + self._remaining(done_samples))

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

    def _remaining(self, done_samples: int) -> str:
        if not self._total or not done_samples:
            return ""
        left_s = (time.monotonic() - self._start) * (self._total - done_samples) / done_samples
        return f"  eta {max(left_s, 0):.0f} s"
