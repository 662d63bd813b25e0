"""Adds up batches into what is shown of a log: coverage, cardinality, values per sample, quantiles, CTR by value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.inspection.sketch import Quantiles, SlotSketch, TopValue, wilson
from elasticctr.data.schema import Schema

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


@dataclass(frozen=True, slots=True)
class SparseSummary:
    name: str
    coverage: float  # share of samples with at least one value
    distinct: int
    distinct_is_exact: bool
    fewest: int
    mean: float
    most: int
    top: tuple[TopValue, ...]
    missed: int  # by how much the shows of a top value may be too low


@dataclass(frozen=True, slots=True)
class DenseSummary:
    """One dimension of a dense slot, after its transform."""

    name: str
    dimension: int
    min: float
    quantiles: tuple[float, ...]  # at QUANTILES
    max: float
    mean: float
    zeros: float  # share of samples
    nan: int


@dataclass(frozen=True, slots=True)
class LabelSummary:
    name: str
    mean: float
    low: float
    high: float


class LogSummary:
    def __init__(self, schema: Schema, top: int = 5) -> None:
        self.schema = schema
        self.rows = 0
        self.shows = 0.0
        self.clicks = np.zeros(len(schema.label))
        self._top = top
        self._sketches = [SlotSketch() for _ in schema.sparse]
        self._covered = np.zeros(len(schema.sparse), dtype=np.int64)
        self._values = np.zeros(len(schema.sparse), dtype=np.int64)
        self._fewest = np.full(len(schema.sparse), np.iinfo(np.int64).max)
        self._most = np.zeros(len(schema.sparse), dtype=np.int64)
        dims = schema.dense_dim
        self._quantiles = Quantiles(dims)
        self._min, self._max = np.full(dims, np.inf), np.full(dims, -np.inf)
        self._sum, self._zeros, self._nan = (
            np.zeros(dims),
            np.zeros(dims, dtype=np.int64),
            np.zeros(dims, dtype=np.int64),
        )

    def add(self, batch: Batch) -> None:
        n = len(batch)
        if n == 0:
            return
        self.rows += n
        self.shows += float(batch.shows.sum())
        self.clicks += batch.labels.sum(axis=0, dtype=np.float64)
        clicks = batch.labels[:, 0].astype(np.float64)
        for s, sketch in enumerate(self._sketches):
            values, offsets = batch.slot(s)
            counts = np.diff(offsets)
            self._covered[s] += int(np.count_nonzero(counts))
            self._values[s] += len(values)
            self._fewest[s] = min(self._fewest[s], int(counts.min()))
            self._most[s] = max(self._most[s], int(counts.max()))
            is_single = len(values) == n and self._most[s] == 1
            sketch.add(values, clicks if is_single else np.repeat(clicks, counts))
        if self.schema.dense_dim:
            self._add_dense(batch.dense)

    def _add_dense(self, dense: NDArray[np.float32]) -> None:
        nan = np.isnan(dense)
        self._nan += nan.sum(axis=0)
        clean = np.where(nan, 0.0, dense)
        self._min = np.minimum(self._min, dense.min(axis=0))
        self._max = np.maximum(self._max, dense.max(axis=0))
        self._sum += clean.sum(axis=0, dtype=np.float64)
        self._zeros += (dense == 0).sum(axis=0)
        self._quantiles.add(dense)

    def labels(self) -> tuple[LabelSummary, ...]:
        n = max(self.rows, 1)
        return tuple(
            LabelSummary(name, float(c) / n, *wilson(float(c), self.rows))
            for name, c in zip(self.schema.label, self.clicks, strict=True)
        )

    def sparse(self) -> tuple[SparseSummary, ...]:
        return tuple(self._sparse_summary(s) for s in range(len(self._sketches)))

    def _sparse_summary(self, s: int) -> SparseSummary:
        sketch, n = self._sketches[s], max(self.rows, 1)
        top = tuple(sketch.top(self._top))
        return SparseSummary(
            name=self.schema.sparse[s].name,
            coverage=float(self._covered[s]) / n,
            distinct=sketch.distinct.count,
            distinct_is_exact=sketch.distinct.is_exact,
            fewest=int(self._fewest[s]) if self.rows else 0,
            mean=float(self._values[s]) / n,
            most=int(self._most[s]),
            top=top,
            missed=sketch.missed,
        )

    def dense(self) -> tuple[DenseSummary, ...]:
        n = max(self.rows, 1)
        at = self._quantiles.at(QUANTILES)
        places = [(slot.name, d) for slot in self.schema.dense for d in range(slot.dim)]
        return tuple(
            DenseSummary(
                name=name,
                dimension=d,
                min=float(self._min[i]),
                quantiles=tuple(float(q) for q in at[:, i]),
                max=float(self._max[i]),
                mean=float(self._sum[i]) / n,
                zeros=float(self._zeros[i]) / n,
                nan=int(self._nan[i]),
            )
            for i, (name, d) in enumerate(places)
        )
