"""Ctrl-C and SIGTERM as a flag that the loop reads between two batches, so a run never stops in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType


class Interrupt:
    """While active, the first signal sets `is_set`; a second one ends the process the usual way."""

    def __init__(self, tell: Callable[[], None] = lambda: None) -> None:
        """`tell` is called at the first signal."""
        self.is_set = False
        self._tell = tell
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.is_set = True
        self._tell()
        # A shell starts background jobs with SIGINT ignored, but a second SIGINT must end them too.
        if self._previous.get(signal.SIGINT) == signal.SIG_IGN:
            self._previous[signal.SIGINT] = signal.default_int_handler
        self._give_back()

    def _give_back(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()
