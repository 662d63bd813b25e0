"""Loss and speed of training between two lines of the run's log. Not synchronised."""

from __future__ import annotations

import time


class LogWindow:
    """Counts since the last line; `last_loss` and `rate` are those of the line before."""

    def __init__(self) -> None:
        self.last_loss: float | None = None
        self.rate: float | None = None
        self.samples = 0
        self._loss_sum = 0.0
        self._since = time.monotonic()

    def add(self, samples: int, loss_sum: float) -> None:
        self.samples += samples
        self._loss_sum += loss_sum

    @property
    def loss(self) -> float:
        return self._loss_sum / max(self.samples, 1)

    @property
    def samples_per_s(self) -> float:
        return self.samples / max(time.monotonic() - self._since, 1e-9)

    def turn(self) -> bool:
        """Ends the window and begins the next; False if nothing was in it."""
        if not self.samples:
            return False
        self.last_loss, self.rate = self.loss, self.samples_per_s
        self.samples, self._loss_sum, self._since = 0, 0.0, time.monotonic()
        return True
