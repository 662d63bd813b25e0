"""Samples as batches: streamed, mixed in a bounded window, made ahead in the background.

The order depends on the files, the options, the seed and the epoch, never on the timing of threads. After any batch
`state()` is enough to continue with exactly the next sample, in another process too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from elasticctr.data.ahead import Ahead
from elasticctr.data.batch import Batch
from elasticctr.data.formats.readers import FilePlace, make_reader
from elasticctr.data.pipeline import (
    BadLineLimit,
    LineCounter,
    Portion,
    SampleRows,
    Stats,
    default_workers,
    read_portions,
)
from elasticctr.data.position import Position, State
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.data.windows import PositionedBatch, Shuffle, cut_batches, make_windows
from elasticctr.errors import ConfigError, DataError
from elasticctr.storage import Source, resolve

if TYPE_CHECKING:
    from elasticctr.data.cache import Cache

_ORDER_OPTIONS = {"fraction", "split_seed", "shuffle_rows", "block_bytes", "max_line_bytes"}


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
        and not a bad line, for logs to be scored. A location may be the directory of a cached sample set."""
        self.schema = schema
        self.options = options or ReadOptions()
        self.seed = seed
        self.stats = Stats()  # of the newest iteration, up to the last batch it gave out
        self._require_label = require_label
        self._cache = _open_cache(location, schema, self.options)
        self.sources: list[Source] = [] if self._cache is not None else resolve(location, self.options)
        self._reader = make_reader(schema, self.options, require_label=require_label)

    def __iter__(self) -> BatchIterator:
        return self.iterate()

    @property
    def cached(self) -> Cache | None:
        """The cached sample set that batches come from, once it is there."""
        return self._cache

    def prepare(self) -> None:
        """Makes the cache that the options ask for, if it is not there or stale. `iterate` does so too."""
        if self._cache is None and self.options.cache is not None:
            from elasticctr.data.cache import ensure_cache

            self._cache = ensure_cache(
                self.options.cache, self.sources, self.schema, self.options, require_label=self._require_label
            )

    def iterate(
        self,
        batch_size: int = 4096,
        *,
        epoch: int = 0,
        start: State | None = None,
        drop_last: bool = False,
        is_ahead: bool = True,
    ) -> BatchIterator:
        """Batches of `batch_size` samples (the last may be smaller, or is dropped) from `start` on.

        Without `is_ahead` batches are put together when asked for, by a caller that is on a thread of its own already.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, not {batch_size}")
        self.prepare()
        identity = self._identity()
        position = Position.load(start, epoch, identity) if start is not None else self._first_position()
        batches = self._batches(batch_size, epoch, position, drop_last)
        if is_ahead and self.options.prefetch:
            return BatchIterator(self, Ahead(batches, self.options.prefetch), epoch, position, identity)
        return BatchIterator(self, batches, epoch, position, identity)

    def _batches(self, batch_size: int, epoch: int, start: Position, drop_last: bool) -> PositionedBatches:
        shuffle = Shuffle(self.options.shuffle_rows, self.seed, epoch)
        portions = self._portions(shuffle, start.place)
        stats = Stats(start.lines_read, start.samples_read, start.bad_read)
        tally: LineCounter = BadLineLimit(
            self.schema, self.options, stats, self.sources[0].path if self.sources else ""
        )
        if self._cache is not None:
            tally = LineCounter(replace(stats, examples=self._cache.manifest.examples))
        try:
            windows = make_windows(portions, tally, shuffle, start.window)
            yield from cut_batches(windows, batch_size, start, drop_last)
        finally:
            portions.close()

    def _first_position(self) -> Position:
        if self._cache is None:
            return Position()
        # Bad lines were met when the cache was made: they count from the start, and by the options of now.
        made = self._cache.manifest
        if made.bad and self.options.on_bad == "fail":
            raise DataError(f"{made.bad} bad lines were left out of {self._cache.directory}: {made.examples[0]}")
        BadLineLimit(self.schema, self.options, Stats(made.lines, made.samples, made.bad, made.examples)).check()
        return Position(lines_read=made.lines - made.samples, bad_read=made.bad)

    def _portions(self, shuffle: Shuffle, start: FilePlace) -> Generator[Portion[SampleRows], None, None]:
        if self._cache is not None:
            return _read_cache(self._cache, shuffle.order_parts(self._cache.part_count), start)
        sources = [self.sources[i] for i in shuffle.order_parts(len(self.sources))]
        workers = default_workers(self.options) if self.options.prefetch else 0
        return read_portions(sources, self._reader, start, workers)

    def estimate_rows(self, state: State) -> int | None:
        """Samples of an epoch, exact for a cache, else estimated from how far the files are read at `state`."""
        if self._cache is not None:
            return len(self._cache)
        sizes = [size for size, _ in (source.stamp() for source in self.sources) if size]
        if len(sizes) < len(self.sources) or not state["samples"]:
            return None
        read = state["file"] + min(state["offset"] * len(sizes) / sum(sizes), 1.0)
        return int(state["samples"] * len(sizes) / read) if read else None

    def _identity(self) -> str:
        """Changes with anything that changes the order or content of samples."""
        order = {"shuffle_rows"} if self._cache else _ORDER_OPTIONS
        options = self.options.model_dump(include=order)
        content = self._cache.content if self._cache else [[Path(s.path).name, s.stamp()[0]] for s in self.sources]
        text = json.dumps([self.schema.fingerprint(), options, self.seed, content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _open_cache(location: str | Sequence[str], schema: Schema, options: ReadOptions) -> Cache | None:
    """The cached sample set that `location` is, if it is one."""
    if not isinstance(location, str) or not (Path(location) / "manifest.json").is_file():
        return None
    from elasticctr.data.cache import Cache, is_cache

    if not is_cache(location):
        return None
    cache = Cache.open(location, schema)
    kept = cache.manifest.reading.fraction
    if options.fraction not in ((0.0, 1.0), kept):
        raise ConfigError(
            f"{location}: a cached sample set has no lines left to split by fraction {list(options.fraction)}; "
            f"it was made with {list(kept)}. Cache each part of the split by itself"
        )
    return cache


def _read_cache(cache: Cache, order: list[int], start: FilePlace) -> Generator[Portion[SampleRows], None, None]:
    for position in range(start.file, len(order)):
        rows = cache.part(order[position])
        yield Portion(FilePlace(position), rows, len(rows))


PositionedBatches = Generator[PositionedBatch, None, None]


class BatchIterator(Iterator[Batch]):
    """Batches of one epoch. Not for use by several threads at once; `close` ends its threads."""

    def __init__(
        self,
        dataset: Dataset,
        batches: PositionedBatches | Ahead[PositionedBatch],
        epoch: int,
        start: Position,
        identity: str,
    ) -> None:
        self._dataset = dataset
        self._batches = batches
        self._epoch = epoch
        self._position = start
        self._identity = identity
        self.stats = Stats(start.lines_read, start.samples_read, start.bad_read)

    def __next__(self) -> Batch:
        positioned = next(self._batches)
        self._position = positioned.position
        self.stats = self._dataset.stats = positioned.stats
        return positioned.batch

    def state(self) -> State:
        """The position after the last batch given out, ready for JSON."""
        return self._position.dump(self._epoch, self._identity)

    def close(self) -> None:
        self._batches.close()

    def __enter__(self) -> BatchIterator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
