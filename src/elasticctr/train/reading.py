"""Batches with their lookups, made ahead on a thread while the model computes.

A lookup (the distinct feasigns of a batch and where each occurs) depends on the batch alone, so making it early
changes no result. Each item carries the position in the data after it: that is what a checkpoint stores.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from elasticctr.data.batch import Batch
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Format, Schema
from elasticctr.data.settings import DataSettings
from elasticctr.table import Lookup

T = TypeVar("T")

_DEPTH = 3  # groups made ahead
_HANDED_OVER = 4096  # samples at a time


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    batch: Batch
    lookups: tuple[Lookup, ...]
    position: dict[str, Any]


def open_dataset(settings: DataSettings, schema: Schema, *, seed: int = 0, require_label: bool = True) -> Dataset:
    if settings.joined is not None:
        schema = schema.joined(Format(settings.joined))
    return Dataset(settings.path, schema, settings, seed=seed, require_label=require_label)


def read_ahead(
    dataset: Dataset,
    look_up: Callable[[Batch], tuple[Lookup, ...]],
    *,
    batch_size: int,
    epoch: int = 0,
    start: dict[str, Any] | None = None,
) -> Generator[PreparedBatch, None, None]:
    """Items of one epoch from `start` on. Closing the iterator ends the thread."""

    def make() -> Iterator[PreparedBatch]:
        batches = dataset.iterate(batch_size=batch_size, epoch=epoch, start=start, is_ahead=False)
        try:
            for batch in batches:
                yield PreparedBatch(batch, look_up(batch), batches.state())
        finally:
            batches.close()

    return ahead(make, _HANDED_OVER // batch_size)


def ahead(make: Callable[[], Iterator[T]], group: int) -> Generator[T, None, None]:
    """What `make` gives, made on a thread. Items are handed over `group` at a time, at least one.

    Each hand-over has the two threads wait for the interpreter lock; small batches, one by one, would spend a tenth of
    the training step on it.
    """
    groups: queue.Queue[list[T] | BaseException | None] = queue.Queue(maxsize=_DEPTH)
    closed = threading.Event()

    def put(items: list[T] | BaseException | None) -> bool:
        while not closed.is_set():
            try:
                groups.put(items, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            items = make()
            while chunk := list(itertools.islice(items, max(group, 1))):
                if not put(chunk):
                    return
            put(None)
        except BaseException as e:
            put(e)

    thread = threading.Thread(target=work, name="elasticctr-read-ahead", daemon=True)
    thread.start()
    try:
        while (received := groups.get()) is not None:
            if isinstance(received, BaseException):
                raise received
            yield from received
    finally:
        closed.set()
        thread.join()
