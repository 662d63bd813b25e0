"""Progress of anything that may take more than two seconds: a bar on a terminal, elsewhere a line every few seconds.

    with Progress("parse", total=rows, unit="samples") as progress:
        progress.advance(len(batch), note="loss 0.45")

Nothing is shown for work that ends sooner. Called from one thread.
"""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from elasticctr.obs import console as consoles

SHOW_AFTER_S = 2.0
LINE_EVERY_S = 5.0


class Progress:
    def __init__(
        self, what: str, total: int | None = None, unit: str = "samples", console: Console | None = None
    ) -> None:
        self.what = what
        self.total = total
        self.unit = unit
        self.done = 0
        self.note = ""
        self._console = console or consoles.stderr()
        self._bars: Bars | None = None
        self._task = TaskID(0)
        self._started_s = self._line_s = time.monotonic()

    def __enter__(self) -> Progress:
        self._started_s = self._line_s = time.monotonic()
        return self

    def advance(self, count: int, note: str | None = None) -> None:
        """Adds `count` to what is done. `note` is shown beside the bar until the next one."""
        self.done += count
        self.note = self.note if note is None else note
        now_s = time.monotonic()
        if now_s - self._started_s < SHOW_AFTER_S:
            return
        if self._console.is_terminal:
            self._draw()
        elif self._line_s == self._started_s or now_s - self._line_s >= LINE_EVERY_S:
            self._line_s = now_s
            self._console.print(self.line(), markup=False, soft_wrap=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    @property
    def rate(self) -> float:
        """Average units per second so far."""
        return self.done / max(self.elapsed_s, 1e-9)

    def line(self) -> str:
        """The state as one plain line."""
        parts = [f"{self.what}: {self.done:,}"]
        if self.total:
            left_s = (self.total - self.done) / max(self.rate, 1e-9)
            parts[0] += f" of {self.total:,} {self.unit} ({self.done / self.total:.0%})"
            parts.append(f"{self.rate:,.0f} {self.unit}/s")
            parts.append(f"{max(left_s, 0):.0f} s left")
        else:
            parts[0] += f" {self.unit}"
            parts.append(f"{self.rate:,.0f} {self.unit}/s")
        if self.note:
            parts.append(self.note)
        return ", ".join(parts)

    def _draw(self) -> None:
        if self._bars is None:
            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TextColumn("{task.completed:,.0f}"),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=self._console,
                transient=True,
            )
            self._task = self._bars.add_task(self.what, total=self.total, completed=0, rate="", note="")
            self._bars.start()
        rate = f"{self.rate:,.0f} {self.unit}/s"
        self._bars.update(self._task, completed=self.done, rate=rate, note=self.note.replace("[", "\\["))
