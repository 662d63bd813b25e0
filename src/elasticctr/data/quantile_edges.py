"""Edges of buckets by quantile, from a log: what `elasticctr data buckets` writes into a schema.

One pass, bounded memory: numbers are exact while there are at most `KEPT` of them; beyond, a uniform sample of that
many. By the inequality of Dvoretzky, Kiefer and Wolfowitz an edge is then off by less than 0.27 % of the samples in
rank, all edges at once, in all but one of a million logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.schema import BucketSlot, DenseSlot, Schema
from elasticctr.errors import DataError

KEPT = 1 << 20


class NumberSample:
    """A uniform sample of a stream of numbers, all of them while they fit."""

    def __init__(self, room: int = KEPT, seed: int = 0) -> None:
        self._kept = np.empty(room, dtype=np.float32)
        self._random = np.random.default_rng(seed)
        self.seen = 0

    def add(self, numbers: NDArray[np.float32]) -> None:
        room = max(0, len(self._kept) - self.seen)
        first, rest = numbers[:room], numbers[room:]
        self._kept[self.seen : self.seen + len(first)] = first
        # Number i takes a random one of i + 1 places, if that is one of those kept.
        order = np.arange(self.seen + len(first), self.seen + len(numbers))
        places = (self._random.random(len(rest)) * (order + 1)).astype(np.int64)
        kept = places < len(self._kept)
        self._kept[places[kept]] = rest[kept]
        self.seen += len(numbers)

    def edges(self, count: int) -> tuple[float, ...]:
        """At most count - 1 edges that cut the numbers into parts of the same size; each is one of the numbers."""
        kept = self._kept[: min(self.seen, len(self._kept))]
        cuts = np.quantile(kept, np.arange(1, count) / count, method="higher")
        return tuple(float(edge) for edge in np.unique(cuts))


def raw_schema(schema: Schema) -> Schema:
    """The schema with numbers as they stand in the log, as edges are."""
    plain = {"transform": "none", "min": (), "diff": ()}
    slots = [slot.model_copy(update=plain) if isinstance(slot, DenseSlot) else slot for slot in schema.slots]
    return schema.model_copy(update={"slots": tuple(slots)})


def find_edges(
    schema: Schema,
    batches: Iterable[Batch],
    advance: Callable[[int], None] = lambda count: None,
    *,
    room: int = KEPT,
) -> Schema:
    """`schema` with the edges of its buckets by quantile filled in from batches of `raw_schema(schema)`.

    DataError for a slot without any number.
    """
    starts, start = {}, 0
    for dense in schema.dense:
        starts[dense.name] = start
        start += dense.dim
    wanted = [slot for slot in schema.derived if isinstance(slot, BucketSlot) and slot.by == "quantile"]
    samples = [NumberSample(room) for _ in wanted]
    for batch in batches:
        for slot, sample in zip(wanted, samples, strict=True):
            numbers = batch.dense[:, starts[slot.of] + slot.index]
            sample.add(numbers[~((numbers == 0) & np.signbit(numbers))])
        advance(len(batch))
    filled: dict[str, BucketSlot] = {}
    for slot, sample in zip(wanted, samples, strict=True):
        if not sample.seen:
            raise DataError(f"slot {slot.of!r} has no number in this log to cut into buckets for {slot.name!r}")
        filled[slot.name] = slot.model_copy(update={"edges": sample.edges(slot.count)})
    return schema.model_copy(update={"slots": tuple(filled.get(slot.name, slot) for slot in schema.slots)})
