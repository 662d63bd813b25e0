"""Crosses and buckets: slots that are in no batch, made from a batch when its rows are looked up.

The trainer and the checks of a version call it; the server does the same natively (native/sample/derive.h).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.data.formats.parser import make_sample_spec
from elasticctr.data.schema import BucketSlot, CrossSlot, Format, Pooling, Schema
from elasticctr.errors import ConfigError

Bags = tuple[NDArray[np.uint64], NDArray[np.int32]]


class Deriver:
    """Values of all slots of a schema that have rows. May be used by several threads at once."""

    def __init__(self, schema: Schema) -> None:
        """ConfigError for buckets by quantile whose edges are not known yet."""
        self._native = make_native(schema) if schema.derived else None

    def bags(self, batch: Batch) -> Bags:
        """Values and offsets, laid out as a batch's, of the slots `Schema.embedded`."""
        if self._native is None:
            return batch.values, batch.offsets
        return self._native.derive(batch.values, batch.offsets, np.ascontiguousarray(batch.dense))

    def whole(self, batch: Batch) -> Batch:
        """The batch with the values of derived slots too, so that `slot` takes a number among `Schema.embedded`."""
        values, offsets = self.bags(batch)
        return replace(batch, values=values, offsets=offsets)


def make_native(schema: Schema) -> _native.Deriver:
    """Makes derived slots, in the trainer and in the server."""
    numbers = {slot.name: number for number, slot in enumerate(schema.embedded)}
    dense = {slot.name: number for number, slot in enumerate(schema.dense)}
    samples = make_sample_spec(schema, Format.SLOT, require_label=False)
    return _native.Deriver(samples, [_make_spec(slot, numbers, dense) for slot in schema.derived])


def _make_spec(slot: CrossSlot | BucketSlot, numbers: dict[str, int], dense: dict[str, int]) -> _native.DerivedSpec:
    if isinstance(slot, CrossSlot):
        return _native.DerivedSpec.cross(
            name=slot.name,
            parts=[numbers[part] for part in slot.of],
            max_values=slot.max_values,
            keep_last=slot.pooling is Pooling.NONE,
        )
    if not slot.bounds:
        raise ConfigError(
            f"slot {slot.name!r} goes by quantile and has no edges yet; fill them in with: "
            "elasticctr data buckets LOG --schema SCHEMA"
        )
    return _native.DerivedSpec.bucket(name=slot.name, dense=dense[slot.of], index=slot.index, edges=list(slot.bounds))
