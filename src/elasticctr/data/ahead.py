"""Runs an iterator ahead of its consumer on a thread, by a bounded number of items."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class _End:
    error: BaseException | None


class Ahead(Iterator[T], Generic[T]):
    """The items of a generator in their order; an exception in the thread is raised here, after the items before it.

    Items are handed over in groups. Each hand-over makes two threads wait for the interpreter lock: small batches,
    handed over one by one, would spend a tenth of a training step on it.

    `close`, the end of the items or the loss of the last reference ends the thread and closes the generator.
    """

    def __init__(
        self,
        items: Generator[T, None, None],
        depth: int,
        *,
        weigh: Callable[[T], int] = lambda item: 1,
        group: int = 1,
        waits_for_end: bool = False,
        name: str = "elasticctr-data",
    ) -> None:
        """A group is handed over once its items weigh `group` or more; up to `depth` groups wait. `waits_for_end`:
        `close` waits for the thread as long as it takes, not just a few seconds. REQUIRES: depth >= 1."""
        self._queue: queue.Queue[list[T] | _End] = queue.Queue(depth)
        self._received: list[T] = []  # the next one last
        self._stopping = threading.Event()
        self._ended = False
        # The thread must not refer to this object, or losing the last reference would never be noticed.
        self._thread = threading.Thread(
            target=_pump, args=(items, weigh, group, self._queue, self._stopping), name=name, daemon=True
        )
        patience_s = None if waits_for_end else _PATIENCE_S
        self._finalize = weakref.finalize(self, _stop, self._queue, self._stopping, self._thread, patience_s)
        self._thread.start()

    def __next__(self) -> T:
        if not self._received:
            if self._ended:
                raise StopIteration
            self._take(self._queue.get())
        return self._received.pop()

    def poll(self, timeout_s: float) -> T | None:
        """The next item, or None if there is none in time or none any more."""
        if not self._received:
            if self._ended:
                return None
            try:
                self._take(self._queue.get(timeout=timeout_s) if timeout_s > 0 else self._queue.get_nowait())
            except (queue.Empty, StopIteration):
                return None
        return self._received.pop()

    def close(self) -> None:
        self._ended = True
        self._received = []
        self._finalize()

    def _take(self, group: list[T] | _End) -> None:
        if not isinstance(group, _End):
            self._received = group[::-1]
            return
        self.close()
        raise StopIteration if group.error is None else group.error


def _pump(
    items: Generator[T, None, None],
    weigh: Callable[[T], int],
    group: int,
    target: queue.Queue[list[T] | _End],
    stopping: threading.Event,
) -> None:
    gathered: list[T] = []
    weight = 0
    error: BaseException | None = None
    try:
        with closing(items):
            for item in items:
                if stopping.is_set():
                    break
                gathered.append(item)
                weight += weigh(item)
                if weight >= group:
                    target.put(gathered)
                    gathered, weight = [], 0
    except BaseException as e:
        error = e
    if gathered:
        target.put(gathered)
    target.put(_End(error))


def _stop(
    target: queue.Queue[list[T] | _End], stopping: threading.Event, thread: threading.Thread, patience_s: float | None
) -> None:
    stopping.set()
    deadline = None if patience_s is None else time.monotonic() + patience_s
    # The thread may be waiting for room: taking groups away lets it see that it should stop. One that waits for a
    # silent server is left behind: it ends when the server answers or its time is up.
    while thread.is_alive() and (deadline is None or time.monotonic() < deadline):
        try:
            target.get(timeout=0.01)
        except queue.Empty:
            thread.join(timeout=0.05)
