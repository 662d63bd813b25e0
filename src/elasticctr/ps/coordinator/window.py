"""Loss and speed of training, for the run's log and the status.

The coordinator adds what trainers report, whoever writes a line of the log turns the window. It knows neither chunks
nor members, and has no lock of its own: the coordinator's holds for it.
"""

from __future__ import annotations

import time


class LogWindow:
    """Counts since the last line of the run's log; its figures are of the line before."""

    def __init__(self) -> None:
        self.last_loss: float | None = None
        self.rate: float | None = None
        self._samples = 0
        self._loss = 0.0
        self._since = time.monotonic()

    def add(self, samples: int, loss_sum: float) -> None:
        self._samples += samples
        self._loss += loss_sum

    def turn(self) -> bool:
        """Ends the window and begins the next; False if nothing was in it."""
        if not self._samples:
            return False
        now = time.monotonic()
        self.last_loss = self._loss / self._samples
        self.rate = self._samples / max(now - self._since, 1e-9)
        self._samples, self._loss, self._since = 0, 0.0, now
        return True
