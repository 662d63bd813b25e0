"""Runs an iterator ahead of its consumer in a background thread, a bounded number of items at most."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class _End:
    error: BaseException | None


class Ahead(Iterator[T], Generic[T]):
    """The items of a generator in their order; an exception in the thread is raised here, after the items before it.

    `close`, the end of the items or the loss of the last reference ends the thread and closes the generator.
    """

    def __init__(self, items: Generator[T, None, None], depth: int) -> None:
        """REQUIRES: depth >= 1."""
        self._queue: queue.Queue[T | _End] = queue.Queue(depth)
        self._stopping = threading.Event()
        self._ended = False
        # The thread must not refer to this object, or losing the last reference would never be noticed.
        self._thread = threading.Thread(
            target=_pump, args=(items, self._queue, self._stopping), name="elasticctr-data", daemon=True
        )
        self._finalize = weakref.finalize(self, _stop, self._queue, self._stopping, self._thread)
        self._thread.start()

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        item = self._queue.get()
        if not isinstance(item, _End):
            return item
        self.close()
        if item.error is not None:
            raise item.error
        raise StopIteration

    def close(self) -> None:
        self._ended = True
        self._finalize()


def _pump(items: Generator[T, None, None], target: queue.Queue[T | _End], stopping: threading.Event) -> None:
    error: BaseException | None = None
    try:
        for item in items:
            if stopping.is_set():
                break
            target.put(item)
    except BaseException as e:
        error = e
    finally:
        items.close()
    target.put(_End(error))


def _stop(target: queue.Queue[T | _End], stopping: threading.Event, thread: threading.Thread) -> None:
    stopping.set()
    deadline = time.monotonic() + _PATIENCE_S
    # The thread may be waiting for room: taking items away lets it see that it should stop. One that waits for a
    # silent server is left to itself, it ends when the server answers or its time is up.
    while thread.is_alive() and time.monotonic() < deadline:
        try:
            target.get(timeout=0.01)
        except queue.Empty:
            thread.join(timeout=0.05)
