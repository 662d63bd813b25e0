"""Columnar samples: made by the parser, kept by the cache, consumed by the trainer.

Sparse values of all slots stand in one array, slot after slot, sample after sample. The values of sample i in the
s-th sparse slot of the schema are `values[offsets[s * n + i] : offsets[s * n + i + 1]]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.schema import Schema


@dataclass(frozen=True, slots=True)
class Batch:
    schema: Schema
    labels: NDArray[np.float32]  # [n, labels]
    dense: NDArray[np.float32]  # [n, schema.dense_dim], dense slots side by side in schema order
    values: NDArray[np.uint64]  # [all values]
    offsets: NDArray[np.int32]  # [sparse slots * n + 1]
    weights: NDArray[np.float32]  # [n]
    shows: NDArray[np.float32]  # [n]; impressions a line stands for, 1 except in the feasign format

    def __len__(self) -> int:
        return len(self.labels)

    def slot(self, index: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """Values of the index-th sparse slot and their n + 1 offsets, which start at 0."""
        n = len(self)
        offsets = self.offsets[index * n : (index + 1) * n + 1]
        return self.values[offsets[0] : offsets[-1]], offsets - offsets[0]

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """The samples at `rows`, in that order."""
        from elasticctr import _native

        values, offsets = _native.take_bags(self.values, self.offsets, len(self), rows)
        return Batch(
            self.schema,
            self.labels[rows],
            self.dense[rows],
            values,
            offsets,
            self.weights[rows],
            self.shows[rows],
        )

    def slice(self, start: int, stop: int) -> Batch:
        """The samples [start, stop), cut to those there are. Only the sparse values are copied."""
        from elasticctr import _native

        start, stop = max(start, 0), max(stop, 0)
        values, offsets = _native.slice_bags(self.values, self.offsets, len(self), start, stop)
        rows = slice(start, max(start, stop))
        return Batch(
            self.schema,
            self.labels[rows],
            self.dense[rows],
            values,
            offsets,
            self.weights[rows],
            self.shows[rows],
        )

    @staticmethod
    def concat(batches: Sequence[Batch]) -> Batch:
        """All samples of `batches`, which share a schema, in order."""
        from elasticctr import _native

        if len(batches) == 1:
            return batches[0]
        values, offsets = _native.concat_bags(
            [b.values for b in batches], [b.offsets for b in batches], [len(b) for b in batches]
        )
        return Batch(
            batches[0].schema,
            np.concatenate([b.labels for b in batches]),
            np.concatenate([b.dense for b in batches]),
            values,
            offsets,
            np.concatenate([b.weights for b in batches]),
            np.concatenate([b.shows for b in batches]),
        )
