"""Stopping and watching long work: cancellation, a time limit, and reported progress."""

from __future__ import annotations

import threading
import time

from elasticctr.errors import DeadlineExceeded, Unavailable


class Watch:
    """Long work calls `check` between steps to learn whether to continue, and reports how far it is."""

    def __init__(self, timeout_s: float) -> None:
        self.deadline_s = time.monotonic() + timeout_s
        self.bytes_done = 0
        self.bytes_total = 0
        self._timeout_s = timeout_s
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        """Raises Unavailable when cancelled, DeadlineExceeded when the time is over."""
        if self._cancelled.is_set():
            raise Unavailable("cancelled")
        if time.monotonic() > self.deadline_s:
            raise DeadlineExceeded(f"not finished within {self._timeout_s:g} s")

    def pause(self, seconds: float) -> None:
        self._cancelled.wait(max(0.0, min(seconds, self.deadline_s - time.monotonic() + 0.01)))
        self.check()
