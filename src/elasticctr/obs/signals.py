"""Signals as messages to the thread that waits for them.

    with Signals(signal.SIGTERM, signal.SIGINT) as signals:
        while signals.wait(10.0) is None:
            ...

Blocking signals and waiting for them is not enough: libraries start threads at import, before signals can be blocked,
and a signal delivered to such a thread ends the process.
"""

from __future__ import annotations

import select
import signal
import socket
import time


class Signals:
    """While active, hands these signals to `wait` and does nothing else about them. For the main thread."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = frozenset(numbers)
        self._came, self._told = socket.socketpair()
        self._came.setblocking(False)
        self._told.setblocking(False)
        # Python's own handler writes the number here, whichever thread receives the signal.
        self._previous_fd = signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, _leave_to_wait) for number in numbers}

    def __enter__(self) -> Signals:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        self._came.close()
        self._told.close()

    def wait(self, timeout_s: float) -> int | None:
        """The next signal, waiting for it if need be; None if none arrives in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(deadline - time.monotonic(), 0.0)
            if not select.select([self._came], [], [], left_s)[0]:
                return None
            number = self._came.recv(1)[0]
            if number in self._numbers:
                return number


def _leave_to_wait(number: int, frame: object) -> None:
    pass
