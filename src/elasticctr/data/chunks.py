"""The log cut into chunks, and the batches of one of them.

Which samples a chunk holds, and how they fall into batches, depends on the data, the options, the batch size and the
chunk alone, never on who reads it. The chunks of an epoch together hold every sample of the data once; batches do not
span chunks. The coordinator of a distributed run cuts, trainers read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from elasticctr.data.batch import Batch
from elasticctr.data.formats.readers import FilePlace, Reader, make_reader
from elasticctr.data.pipeline import LineCounter, Portion, SampleRows, Stats, default_workers, read_portions
from elasticctr.data.position import Position
from elasticctr.data.schema import Format, Schema
from elasticctr.data.settings import DataSettings, ReadOptions
from elasticctr.data.windows import Shuffle, cut_batches, make_windows
from elasticctr.errors import DataError, FailedPrecondition
from elasticctr.storage import Source, open_source
from elasticctr.storage.span import Span, first_line_from

Unit = Literal["bytes", "row_groups", "cache_chunks", "file"]
_UNITS = ("bytes", "row_groups", "cache_chunks", "file")
_NUMBER_BITS = 32


@dataclass(frozen=True, slots=True)
class Chunk:
    """What is leased of the log, and read as one. `unit` says what `start` and `end` count; a whole file: 0 and 0."""

    path: str
    unit: Unit
    start: int = 0
    end: int = 0
    date: str | None = None
    size: int | None = None  # of the file when it was cut, if known
    epoch: int = 0
    number: int = 0  # within the epoch
    seed: int = 0

    @property
    def id(self) -> int:
        return self.epoch << _NUMBER_BITS | self.number

    def as_dict(self) -> dict[str, Any]:
        source = {"path": self.path, "start": self.start, "end": self.end, "unit": self.unit, "size": self.size}
        place = {"id": str(self.id), "epoch": self.epoch, "number": self.number}
        return {**place, "source": source, "date": self.date, "seed": self.seed}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Chunk:
        """Raises DataError for anything but a chunk."""
        try:
            source = value["source"]
            unit, path, date, size = source["unit"], source["path"], value["date"], source.get("size")
            start, end = int(source["start"]), int(source["end"])
            epoch, number, seed = int(value["epoch"]), int(value["number"]), int(value["seed"])
            said = int(value["id"])
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise DataError(f"not a chunk of work: {type(e).__name__}: {e}") from None
        is_sound = isinstance(path, str) and unit in _UNITS and 0 <= start <= end and epoch >= 0 and seed >= 0
        if not is_sound or not 0 <= number < 1 << _NUMBER_BITS or not isinstance(date, str | None):
            raise DataError(f"not a chunk of work: {value!r}")
        chunk = cls(path, cast(Unit, unit), start, end, date, None if size is None else int(size), epoch, number, seed)
        if said != chunk.id:
            raise DataError(f"a chunk of work whose id {said} is not that of epoch {epoch}, number {number}")
        return chunk

    def describe(self) -> str:
        if self.unit == "file":
            return self.path
        return f"{self.path} [{self.unit.replace('_', ' ')} {self.start} to {self.end}]"


def seed_of(seed: int, epoch: int, number: int) -> int:
    """The seed a chunk's rows are mixed with."""
    return int.from_bytes(hashlib.sha256(f"{seed} {epoch} {number}".encode()).digest()[:7], "little")


class ChunkBatches(Iterator[Batch]):
    """The batches of a chunk. `stats` are of all that was read for those given out; complete at the end."""

    def __init__(self, batches: Generator[Batch, None, None], tally: LineCounter) -> None:
        self._batches = batches
        self._tally = tally

    @property
    def stats(self) -> Stats:
        return self._tally.stats

    def __next__(self) -> Batch:
        return next(self._batches)

    def close(self) -> None:
        """Ends its threads."""
        self._batches.close()

    def __enter__(self) -> ChunkBatches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_chunk(
    chunk: Chunk,
    schema: Schema,
    options: ReadOptions,
    batch_size: int,
    *,
    first_batch: int = 0,
    require_label: bool = True,
) -> ChunkBatches:
    """The batches of `chunk` from number `first_batch` on, each of `batch_size` samples but for the last.

    With `options.shuffle_rows` rows are mixed inside the chunk. Bad lines are counted and left to the caller,
    unless `on_bad` is fail. A chunk may hold no sample at all.
    """
    if isinstance(options, DataSettings) and options.joined is not None:
        schema = schema.joined(Format(options.joined))
    tally = _ChunkLines(options)
    return ChunkBatches(_deliver(chunk, schema, options, batch_size, first_batch, require_label, tally), tally)


def _deliver(
    chunk: Chunk,
    schema: Schema,
    options: ReadOptions,
    batch_size: int,
    first_batch: int,
    require_label: bool,
    tally: LineCounter,
) -> Generator[Batch, None, None]:
    shuffle = Shuffle(options.shuffle_rows, chunk.seed, chunk.epoch)
    is_cached = chunk.unit == "cache_chunks"
    portions = _read_cached(chunk, schema) if is_cached else _read_file(chunk, schema, options, require_label)
    try:
        windows = make_windows(portions, tally, shuffle, 0)
        for number, positioned in enumerate(cut_batches(windows, batch_size, Position(), drop_last=False)):
            if number >= first_batch:
                yield positioned.batch
    finally:
        portions.close()


def _read_cached(chunk: Chunk, schema: Schema) -> Generator[Portion[SampleRows], None, None]:
    from elasticctr.data.cache import Cache

    cache = Cache.open(chunk.path, schema)
    if chunk.end > cache.part_count:
        raise FailedPrecondition(
            f"{chunk.path}: has {cache.part_count} parts, {chunk.end} when the run began; "
            "restore the cached sample set, or start a new run"
        )
    for index in range(chunk.start, chunk.end):
        rows = cache.part(index)
        yield Portion(FilePlace(0), rows, len(rows), chunk.path)


def _read_file(
    chunk: Chunk, schema: Schema, options: ReadOptions, require_label: bool
) -> Generator[Portion[SampleRows], None, None]:
    source = open_source(chunk.path, options)
    if chunk.size is not None and (size := source.stamp()[0]) != chunk.size:
        raise FailedPrecondition(
            f"{chunk.path}: has {size} bytes, {chunk.size} when the run began; restore it, or start a new run"
        )
    reader = make_reader(schema, options, require_label=require_label)
    start = FilePlace()
    path = chunk.path
    if chunk.unit == "bytes":
        at = first_line_from(source, chunk.start)
        if at is None or at >= chunk.end:
            return
        start, source = FilePlace(0, at), Span(source.path, source.filesystem, chunk.end)
        path = f"{path} from byte {at}" if at else path  # the lines before it were not counted
    elif chunk.unit == "row_groups":
        reader = _RowGroups(reader, chunk.start, chunk.end)
    workers = default_workers(options) if options.prefetch else 0
    with closing(read_portions([source], reader, start, workers)) as portions:
        for portion in portions:
            yield replace(portion, path=path)


class _RowGroups:
    """A Parquet reader that keeps to some row groups."""

    def __init__(self, reader: Reader, start: int, end: int) -> None:
        self._reader = cast(Any, reader)
        self._start = start
        self._end = end
        self.parse = reader.parse

    def blocks(self, source: Source, offset: int, line: int) -> Iterator[tuple[int, int, Any]]:
        blocks: Iterator[tuple[int, int, Any]] = self._reader.group_blocks(source, self._start, self._end, offset)
        return blocks


class _ChunkLines(LineCounter):
    def __init__(self, options: ReadOptions) -> None:
        super().__init__(Stats())
        self._on_bad = options.on_bad

    def count(self, portion: Portion[SampleRows]) -> None:
        if portion.bad_count and self._on_bad == "fail":
            raise DataError(portion.bad[0].reason, portion.path, portion.bad[0].line)
        super().count(portion)
