"""Batches with their lookups, made ahead on a thread while the model computes.

A lookup (the distinct feasigns of a batch and where each occurs) depends on the batch alone, so making it early
changes no result. Each item carries the position in the data after it: that is what a checkpoint stores.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from elasticctr.data.batch import Batch
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Schema
from elasticctr.data.settings import DataSettings
from elasticctr.table import Lookup


@dataclass(frozen=True, slots=True)
class Item:
    batch: Batch
    lookups: tuple[Lookup, ...]
    position: dict[str, Any]


def open_dataset(settings: DataSettings, schema: Schema, *, seed: int = 0, require_label: bool = True) -> Dataset:
    return Dataset(settings.path, schema, settings, seed=seed, require_label=require_label)


def read_ahead(
    dataset: Dataset,
    look_up: Callable[[Batch], tuple[Lookup, ...]],
    *,
    batch_size: int,
    epoch: int = 0,
    start: dict[str, Any] | None = None,
    depth: int = 4,
) -> Generator[Item, None, None]:
    """Items of one epoch from `start` on. Closing the iterator ends the thread."""
    items: queue.Queue[Item | BaseException | None] = queue.Queue(maxsize=depth)
    closed = threading.Event()

    def put(item: Item | BaseException | None) -> bool:
        while not closed.is_set():
            try:
                items.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            batches = dataset.iterate(batch_size=batch_size, epoch=epoch, start=start)
            try:
                for batch in batches:
                    if not put(Item(batch, look_up(batch), batches.state())):
                        return
            finally:
                batches.close()
            put(None)
        except BaseException as e:
            put(e)

    thread = threading.Thread(target=work, name="elasticctr-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item = items.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        closed.set()
        thread.join()
