"""Samples as batches: streamed, mixed in a bounded window, made ahead in the background.

The order depends on the files, the options, the seed and the epoch, never on the timing of threads. After any batch
`state()` is enough to continue with exactly the next sample, in another process too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.ahead import Ahead
from elasticctr.data.batch import Batch
from elasticctr.data.pipeline import Chunk, Judge, Stats, default_workers, read_chunks
from elasticctr.data.position import Position, State
from elasticctr.data.readers import Place, make_reader
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.data.sources import Source, resolve
from elasticctr.errors import ConfigError


class Dataset:
    """The samples of a location. Iterating it is `iterate` with the defaults."""

    def __init__(
        self,
        location: str | Sequence[str],
        schema: Schema,
        options: ReadOptions | None = None,
        *,
        seed: int = 0,
        require_label: bool = True,
    ) -> None:
        """Finds the files; reads none yet. `seed` is that of shuffling. Without `require_label` a missing label is NaN
        and not a bad line, for logs to be scored."""
        self.schema = schema
        self.options = options or ReadOptions()
        self.seed = seed
        self.stats = Stats()  # of the newest iteration, up to the last batch it gave out
        self.sources: list[Source] = resolve(location, self.options)
        self._reader = make_reader(schema, self.options, require_label=require_label)

    def __iter__(self) -> BatchIterator:
        return self.iterate()

    def iterate(
        self, batch_size: int = 4096, *, epoch: int = 0, start: State | None = None, drop_last: bool = False
    ) -> BatchIterator:
        """Batches of `batch_size` samples (the last may be smaller, or is dropped) from `start` on."""
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, not {batch_size}")
        identity = self._identity()
        position = Position.load(start, epoch, identity) if start is not None else Position()
        batches = self._batches(batch_size, epoch, position, drop_last)
        return BatchIterator(self, batches, epoch, position, identity)

    def _batches(self, batch_size: int, epoch: int, start: Position, drop_last: bool) -> Deliveries:
        workers = default_workers(self.options) if self.options.prefetch else 0
        sources = self.sources
        if self.options.shuffle_rows:
            sources = [sources[i] for i in _random(self.seed, epoch, 0).permutation(len(sources))]
        judge = Judge(self.schema, self.options, Stats(start.lines_read, start.samples_read, start.bad_read))
        chunks = read_chunks(sources, self._reader, start.place, workers)
        try:
            yield from _cut(self._windows(chunks, judge, epoch, start), batch_size, start, drop_last)
        finally:
            chunks.close()

    def _windows(self, chunks: Iterator[Chunk], judge: Judge, epoch: int, start: Position) -> Iterator[_Window]:
        """Chunks taken together until there are `shuffle_rows` samples; without shuffling, each by itself."""
        index = start.window
        held: list[Chunk] = []
        before = judge.stats
        while True:
            random = _random(self.seed, epoch, index + 1)
            # The first window of an epoch has a random size, so that another epoch mixes other neighbours.
            rows = self.options.shuffle_rows if index else int(self.options.shuffle_rows * random.uniform(0.5, 1.0))
            have = 0
            for chunk in chunks:
                judge.count(chunk)
                held.append(chunk)
                have += len(chunk.parsed.batch)
                if have >= max(rows, 1):
                    break
            if have == 0:
                judge.finish()
                return
            batch = Batch.concat([chunk.parsed.batch for chunk in held])
            order = random.permutation(have) if self.options.shuffle_rows else None
            yield _Window(batch, order, held[0].place, index, before, judge.stats)
            held, before, index = [], judge.stats, index + 1

    def _identity(self) -> str:
        """Changes with anything that changes the order or content of samples."""
        order = {"fraction", "split_seed", "shuffle_rows", "block_bytes", "max_line_bytes"}
        options = self.options.model_dump(include=order)
        files = [[source.path.rsplit("/", 1)[-1], source.stamp()[0]] for source in self.sources]
        text = json.dumps([self.schema.fingerprint(), options, self.seed, files], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Window:
    batch: Batch
    order: NDArray[np.int64] | None
    place: Place
    index: int
    before: Stats
    after: Stats

    def cut(self, start: int, stop: int) -> Batch:
        return self.batch.slice(start, stop) if self.order is None else self.batch.take(self.order[start:stop])

    def position(self, used: int, samples: int) -> Position:
        at, read = self.place, self.before
        return Position(at.file, at.offset, at.line, self.index, used, samples, read.lines, read.samples, read.bad)


@dataclass(frozen=True, slots=True)
class _Delivery:
    batch: Batch
    position: Position
    stats: Stats


def _cut(windows: Iterator[_Window], batch_size: int, start: Position, drop_last: bool) -> Iterator[_Delivery]:
    pieces: list[Batch] = []
    have, used, samples = 0, start.used, start.samples
    window = None
    for window in windows:
        while used < len(window.batch):
            stop = min(used + batch_size - have, len(window.batch))
            pieces.append(window.cut(used, stop))
            have, used = have + stop - used, stop
            if have == batch_size:
                samples += have
                yield _Delivery(Batch.concat(pieces), window.position(used, samples), window.after)
                pieces, have = [], 0
        used = 0
    if window is not None and have and not drop_last:
        position = window.position(len(window.batch), samples + have)
        yield _Delivery(Batch.concat(pieces), position, window.after)


def _random(seed: int, epoch: int, index: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, epoch, index]))


Deliveries = Generator[_Delivery, None, None]


class BatchIterator(Iterator[Batch]):
    """Batches of one epoch. Not for use by several threads at once; `close` ends its threads."""

    def __init__(self, dataset: Dataset, deliveries: Deliveries, epoch: int, start: Position, identity: str) -> None:
        self._dataset = dataset
        prefetch = dataset.options.prefetch
        self._deliveries = Ahead(deliveries, prefetch) if prefetch else deliveries
        self._epoch = epoch
        self._position = start
        self._identity = identity
        self.stats = Stats(start.lines_read, start.samples_read, start.bad_read)

    def __next__(self) -> Batch:
        delivery = next(self._deliveries)
        self._position = delivery.position
        self.stats = self._dataset.stats = delivery.stats
        return delivery.batch

    def state(self) -> State:
        """The position after the last batch given out, ready for JSON."""
        return self._position.dump(self._epoch, self._identity)

    def close(self) -> None:
        self._deliveries.close()

    def __enter__(self) -> BatchIterator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
