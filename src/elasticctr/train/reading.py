"""Batches with their lookups, made ahead on a thread while the model computes.

A lookup (the distinct feasigns of a batch and where each occurs) depends on the batch alone, so making it early
changes no result. Each prepared batch carries the position in the data after it: that is what a checkpoint stores.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from elasticctr.data.ahead import Ahead
from elasticctr.data.batch import Batch
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Format, Schema
from elasticctr.data.settings import DataSettings
from elasticctr.table import Lookup

DEPTH = 3  # groups of batches made ahead
GROUP_SAMPLES = 4096  # in a group, at least


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
) -> Ahead[PreparedBatch]:
    """The batches of one epoch from `start` on."""

    def prepare() -> Generator[PreparedBatch, None, None]:
        with dataset.iterate(batch_size=batch_size, epoch=epoch, start=start, is_ahead=False) as batches:
            for batch in batches:
                yield PreparedBatch(batch, look_up(batch), batches.state())

    return Ahead(
        prepare(), DEPTH, weigh=lambda item: len(item.batch), group=GROUP_SAMPLES, name="elasticctr-read-ahead"
    )
