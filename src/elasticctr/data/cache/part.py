"""Samples ↔ an Arrow record batch: one row per sample, one list column per sparse slot."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.data.schema import Schema

PART_ROWS = 1 << 16


def arrow_schema(schema: Schema) -> pa.Schema:
    fields = [
        pa.field("labels", pa.list_(pa.float32(), len(schema.label)), nullable=False),
        pa.field("weights", pa.float32(), nullable=False),
        pa.field("shows", pa.float32(), nullable=False),
    ]
    if schema.dense_dim:
        fields.append(pa.field("dense", pa.list_(pa.float32(), schema.dense_dim), nullable=False))
    values = pa.field("value", pa.uint64(), nullable=False)
    fields += [pa.field(f"slot.{slot.name}", pa.list_(values), nullable=False) for slot in schema.sparse]
    return pa.schema(fields)


def encode(batch: Batch) -> pa.RecordBatch:
    schema = arrow_schema(batch.schema)
    arrays = [_matrix(batch.labels), pa.array(batch.weights), pa.array(batch.shows)]
    if batch.schema.dense_dim:
        arrays.append(_matrix(batch.dense))
    for i in range(len(batch.schema.sparse)):
        values, offsets = batch.slot(i)
        arrays.append(
            pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), type=schema.field(len(arrays)).type)
        )
    return pa.record_batch(arrays, schema=schema)


def _matrix(rows: NDArray[np.float32]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(rows).ravel()), rows.shape[1])


class CachedPart:
    """Samples in a memory-mapped record batch. Batches are copies: they outlive the mapping and may be written to."""

    def __init__(self, schema: Schema, batch: pa.RecordBatch) -> None:
        self._schema = schema
        self._rows: int = batch.num_rows
        self._owner = batch  # keeps the mapping alive
        self._labels = _floats(batch.column(0)).reshape(self._rows, len(schema.label))
        self._weights = _floats(batch.column(1))
        self._shows = _floats(batch.column(2))
        first = 3
        self._dense = np.zeros((self._rows, 0), np.float32)
        if schema.dense_dim:
            self._dense = _floats(batch.column(3)).reshape(self._rows, schema.dense_dim)
            first = 4
        columns = [batch.column(i) for i in range(first, batch.num_columns)]
        self._bags = _native.BagColumns(
            [column.values.to_numpy() for column in columns], [column.offsets.to_numpy() for column in columns]
        )

    def __len__(self) -> int:
        return self._rows

    def slice(self, start: int, stop: int) -> Batch:
        """The samples [start, stop), cut to those there are."""
        stop = min(stop, self._rows)
        start = min(start, stop)
        values, offsets = self._bags.slice(start, stop)
        return Batch(
            self._schema,
            self._labels[start:stop].copy(),
            self._dense[start:stop].copy(),
            values,
            offsets,
            self._weights[start:stop].copy(),
            self._shows[start:stop].copy(),
        )


def _floats(column: pa.Array) -> NDArray[np.float32]:
    values = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    floats: NDArray[np.float32] = values.to_numpy()
    return floats
