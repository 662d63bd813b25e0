"""Portions → windows of mixed samples → batches, each with the position after it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.formats.readers import FilePlace
from elasticctr.data.pipeline import LineCounter, Portion, SampleRows, Stats
from elasticctr.data.position import Position


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Random orders: pure functions of seed and epoch."""

    rows: int  # samples mixed at a time; 0: none
    seed: int
    epoch: int

    def order_parts(self, count: int) -> list[int]:
        """Of files, or of the parts of a cached sample set."""
        if self.rows == 0:
            return list(range(count))
        return [int(i) for i in self._random(0).permutation(count)]

    def window_rows(self, window: int) -> int:
        if window > 0 or self.rows == 0:
            return max(self.rows, 1)
        # The first window of an epoch has a random size, so that another epoch mixes other neighbours.
        return max(int(self.rows * self._random(1).uniform(0.5, 1.0)), 1)

    def order_rows(self, window: int, count: int) -> NDArray[np.int64] | None:
        """None: as they stand."""
        return None if self.rows == 0 else self._random(window + 2).permutation(count)

    def _random(self, use: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64([self.seed, self.epoch, use]))


@dataclass(frozen=True, slots=True)
class Window:
    samples: SampleRows
    order: NDArray[np.int64] | None  # REQUIRES: with an order, `samples` is a Batch
    place: FilePlace
    index: int
    before: Stats
    after: Stats

    def cut(self, start: int, stop: int) -> Batch:
        if self.order is None:
            return self.samples.slice(start, stop)
        assert isinstance(self.samples, Batch)
        return self.samples.take(self.order[start:stop])

    def position(self, used: int, samples: int) -> Position:
        at, read = self.place, self.before
        return Position(at.file, at.offset, at.line, self.index, used, samples, read.lines, read.samples, read.bad)


@dataclass(frozen=True, slots=True)
class PositionedBatch:
    batch: Batch
    position: Position
    stats: Stats


def make_windows(
    portions: Iterator[Portion[SampleRows]], tally: LineCounter, shuffle: Shuffle, index: int
) -> Iterator[Window]:
    """Portions taken together until there are enough samples to mix; without shuffling, each by itself."""
    while True:
        before, held, have = tally.stats, [], 0
        wanted = shuffle.window_rows(index)
        for portion in portions:
            tally.count(portion)
            if len(portion.rows):
                held.append(portion)
                have += len(portion.rows)
            if have >= wanted:
                break
        if not held:
            tally.finish()
            return
        order = shuffle.order_rows(index, have)
        samples = held[0].rows if order is None else _join([portion.rows for portion in held])
        yield Window(samples, order, held[0].place, index, before, tally.stats)
        index += 1


def _join(parts: list[SampleRows]) -> Batch:
    return Batch.concat([part if isinstance(part, Batch) else part.slice(0, len(part)) for part in parts])


def cut_batches(
    windows: Iterator[Window], batch_size: int, start: Position, drop_last: bool
) -> Generator[PositionedBatch, None, None]:
    pieces: list[Batch] = []
    have, used, samples = 0, start.used, start.samples
    window = None
    for window in windows:
        while used < len(window.samples):
            stop = min(used + batch_size - have, len(window.samples))
            pieces.append(window.cut(used, stop))
            have, used = have + stop - used, stop
            if have == batch_size:
                samples += have
                yield PositionedBatch(Batch.concat(pieces), window.position(used, samples), window.after)
                pieces, have = [], 0
        used = 0
    if window is not None and have and not drop_last:
        position = window.position(len(window.samples), samples + have)
        yield PositionedBatch(Batch.concat(pieces), position, window.after)
