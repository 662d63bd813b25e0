"""Bounded-memory summaries of one slot: how many different values, which are the most frequent, how often clicked."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.mixing import mix64

SMALLEST = 1 << 14
FREQUENT = 1 << 12
_HELD_VALUES = 1 << 16


class Distinct:
    """Different values: counted exactly up to SMALLEST, then estimated from the SMALLEST smallest hashes (error
    about 1 %)."""

    def __init__(self, smallest: int = SMALLEST) -> None:
        self._limit = smallest
        self._hashes = np.empty(0, dtype=np.uint64)  # sorted, distinct

    def add(self, values: NDArray[np.uint64]) -> None:
        hashes = mix64(values)
        if len(self._hashes) == self._limit:
            hashes = hashes[hashes < self._hashes[-1]]
            if not len(hashes):
                return
        self._hashes = np.union1d(self._hashes, hashes)[: self._limit]

    @property
    def is_exact(self) -> bool:
        return len(self._hashes) < self._limit

    @property
    def count(self) -> int:
        if self.is_exact:
            return len(self._hashes)
        return round((self._limit - 1) / ((float(self._hashes[-1]) + 1) / 2.0**64))


@dataclass(frozen=True, slots=True)
class TopValue:
    """`low` and `high`: the 95 % interval of the CTR."""

    value: int
    shows: int
    clicks: int
    ctr: float
    low: float
    high: float


class SlotSketch:
    """Values with the label of their sample. A value seen several times in one sample counts each time."""

    def __init__(self, frequent: int = FREQUENT) -> None:
        self.distinct = Distinct()
        self._frequent = frequent
        self._values = np.empty(0, dtype=np.uint64)
        self._counts = np.empty((0, 2))  # shows, clicks
        self._lost = 0.0  # the most shows that a dropped value may have had
        self._held: list[tuple[NDArray[np.uint64], NDArray[np.float64]]] = []
        self._held_values = 0

    def add(self, values: NDArray[np.uint64], clicks: NDArray[np.float64]) -> None:
        self._held.append((values, clicks))
        self._held_values += len(values)
        if self._held_values >= _HELD_VALUES:
            self._merge()

    def top(self, count: int) -> list[TopValue]:
        """The most frequent values. Shows are short by at most `missed`."""
        self._merge()
        order = np.lexsort((self._values, -self._counts[:, 0]))[:count]
        return [_top_value(int(self._values[i]), *self._counts[i]) for i in order]

    @property
    def missed(self) -> int:
        """By how much the shows of a value may be too low; 0 while everything is counted."""
        return int(self._lost)

    def finish(self) -> None:
        self._merge()

    def _merge(self) -> None:
        if not self._held:
            return
        values = np.concatenate([held for held, _ in self._held])
        clicks = np.concatenate([held for _, held in self._held])
        self._held, self._held_values = [], 0
        different, where = np.unique(values, return_inverse=True)
        size = len(different)
        counts = np.stack([np.bincount(where, minlength=size), np.bincount(where, clicks, minlength=size)], axis=1)
        self.distinct.add(different)
        merged, where = np.unique(np.concatenate([self._values, different]), return_inverse=True)
        totals = np.zeros((len(merged), 2))
        np.add.at(totals, where, np.concatenate([self._counts, counts]))
        if len(merged) > self._frequent:
            order = np.argpartition(-totals[:, 0], self._frequent)
            self._lost += float(totals[order[self._frequent :], 0].max())
            kept = np.sort(order[: self._frequent])
            merged, totals = merged[kept], totals[kept]
        self._values, self._counts = merged, totals


def _top_value(value: int, shows: float, clicks: float) -> TopValue:
    low, high = wilson(clicks, shows)
    return TopValue(value, int(shows), int(clicks), clicks / shows, low, high)


def wilson(clicks: float, shows: float, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a rate: sane for few shows and rates near 0, where the normal one is not."""
    if shows <= 0:
        return 0.0, 1.0
    rate = clicks / shows
    centre = rate + z * z / (2 * shows)
    spread = z * sqrt(rate * (1 - rate) / shows + z * z / (4 * shows * shows))
    scale = 1 + z * z / shows
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


class Quantiles:
    """Quantiles of dense columns from a uniform sample of rows; exact while there are no more rows than it keeps."""

    def __init__(self, dims: int, rows: int = 1 << 14) -> None:
        self._rows = np.empty((rows, dims), dtype=np.float32)
        self._seen = 0
        self._random = np.random.default_rng(0)

    def add(self, block: NDArray[np.float32]) -> None:
        room = max(0, len(self._rows) - self._seen)
        first = block[:room]
        self._rows[self._seen : self._seen + len(first)] = first
        rest = block[room:]
        # Row number i takes a random one of i + 1 places, if that is one of those kept.
        numbers = np.arange(self._seen + len(first), self._seen + len(block))
        places = (self._random.random(len(rest)) * (numbers + 1)).astype(np.int64)
        kept = places < len(self._rows)
        self._rows[places[kept]] = rest[kept]
        self._seen += len(block)

    def at(self, fractions: tuple[float, ...]) -> NDArray[np.float64]:
        """[fractions, dims]"""
        rows = self._rows[: min(self._seen, len(self._rows))]
        if not len(rows):
            return np.zeros((len(fractions), self._rows.shape[1]))
        return np.asarray(np.quantile(rows, fractions, axis=0), dtype=np.float64)
