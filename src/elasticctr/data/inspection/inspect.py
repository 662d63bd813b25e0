"""Reads a log once and describes what is in it. Used by `elasticctr data inspect` and `data convert`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet

from elasticctr.data.batch import Batch
from elasticctr.data.cache import Cache, is_cache
from elasticctr.data.formats.arrow_errors import explain_arrow
from elasticctr.data.formats.readers import FilePlace, make_reader
from elasticctr.data.guessing.columns import guess_parquet
from elasticctr.data.guessing.guess import HEAD_BYTES, Guess, guess_text
from elasticctr.data.inspection.summary import DenseSummary, LabelSummary, LogSummary, SparseSummary
from elasticctr.data.pipeline import Portion, default_workers, read_portions
from elasticctr.data.schema import Format, Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import DataError
from elasticctr.storage import Source, resolve

BAD_LINES_KEPT = 20
_PARQUET_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Log:
    """Files and how to read them. `notes`: what the guess rests on; empty if the schema was given."""

    sources: tuple[Source, ...]
    schema: Schema
    notes: tuple[str, ...] = ()
    cache: Cache | None = None  # read instead of the sources

    def with_schema(self, schema: Schema) -> Log:
        return replace(self, schema=schema)

    def portions(self, options: ReadOptions) -> Generator[Portion[Batch], None, None]:
        """Samples in reading order, some thousands at a time."""
        if self.cache is not None:
            for i in range(self.cache.part_count):
                part = self.cache.part(i)
                yield Portion(FilePlace(i), part.slice(0, len(part)), len(part), str(self.cache.directory))
            return
        reader = make_reader(self.schema, options)
        with closing(read_portions(list(self.sources), reader, FilePlace(), default_workers(options))) as portions:
            yield from portions


@dataclass(frozen=True, slots=True)
class LogInspection:
    location: str
    files: tuple[str, ...]
    schema: Schema
    notes: tuple[str, ...]
    rows: int
    is_complete: bool  # False: stopped at the row limit
    lines: int
    bad: int
    bad_lines: tuple[str, ...]  # the first, as path:line: reason
    bytes: int | None  # as stored; None where a server does not tell
    labels: tuple[LabelSummary, ...]
    sparse: tuple[SparseSummary, ...]
    dense: tuple[DenseSummary, ...]

    @property
    def bytes_per_row(self) -> float | None:
        if self.bytes is None or not self.is_complete or not self.rows:
            return None
        return self.bytes / self.rows


def open_log(location: str, schema: Schema | None, format: Format | None, options: ReadOptions) -> Log:
    """Finds the files and, without a schema, guesses one from the first that is not empty."""
    if is_cache(location):
        cache = Cache.open(location, schema)
        return Log((), cache.schema, ("a cached sample set, which keeps its schema",), cache)
    sources = tuple(resolve(location, options))
    if schema is not None:
        if format is not None and format is not schema.format:
            schema = schema.model_copy(update={"format": format})
        return Log(sources, schema)
    for source in sources:
        head = _head(source)
        if head:
            guess = _guess(source, head, format)
            return Log(sources, guess.schema, guess.notes)
    raise DataError("is empty" if len(sources) == 1 else f"all {len(sources)} files are empty", location)


def inspect_log(
    location: str,
    schema: Schema | None = None,
    format: Format | None = None,
    rows: int | None = None,
    top: int = 5,
    options: ReadOptions | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> LogInspection:
    """One pass over at most `rows` samples (by default all). Bad lines are counted, never fatal."""
    options = options or ReadOptions()
    log = open_log(location, schema, format, options)
    summary = LogSummary(log.schema, top)
    lines = bad = 0
    bad_lines: list[str] = []
    is_complete = True
    with closing(log.portions(options)) as portions:
        for portion in portions:
            batch = portion.rows
            if rows is not None and summary.rows + len(batch) > rows:
                batch = batch.slice(0, rows - summary.rows)
                is_complete = False
            lines += portion.lines
            bad += portion.bad_count
            room = BAD_LINES_KEPT - len(bad_lines)
            bad_lines += [f"{portion.path}:{b.line}: {b.reason}" for b in portion.bad[:room]]
            summary.add(batch)
            advance(len(batch))
            if not is_complete:
                break
    if not summary.rows:
        raise _nothing(location, log.schema, lines, bad_lines)
    return LogInspection(
        location=location,
        files=tuple(source.path for source in log.sources) or (location,),
        schema=log.schema,
        notes=log.notes,
        rows=summary.rows,
        is_complete=is_complete,
        lines=lines,
        bad=bad,
        bad_lines=tuple(bad_lines),
        bytes=_stored_bytes(log.sources) if log.cache is None else log.cache.manifest.size,
        labels=summary.labels(),
        sparse=summary.sparse(),
        dense=summary.dense(),
    )


def _nothing(location: str, schema: Schema, lines: int, bad_lines: list[str]) -> DataError:
    if not lines:
        return DataError("holds no samples", location)
    return DataError(f"no line is a sample of the {schema.format} format; the first: {bad_lines[0]}")


def _head(source: Source) -> bytes:
    buffer = bytearray(HEAD_BYTES)
    with source.open() as stream:
        filled = stream.read_into(memoryview(buffer))
    return bytes(buffer[:filled])


def _guess(source: Source, head: bytes, format: Format | None) -> Guess:
    if head.startswith(b"PAR1") or format is Format.PARQUET:
        try:
            with source.open_raw() as stream, pa.parquet.ParquetFile(stream) as file:
                batches = file.iter_batches(_PARQUET_ROWS)
                first = next(batches, None)
                table = pa.Table.from_batches([] if first is None else [first], file.schema_arrow)
        except MemoryError as e:
            raise explain_arrow(e, source.path, "is not a whole Parquet file: {}") from None
        except (pa.ArrowInvalid, OSError) as e:
            raise DataError(f"is not a whole Parquet file: {e}", source.path) from None
        return Guess(guess_parquet(table, source.path), ("columns of the Parquet file",))
    return guess_text(head, source.path, format, whole=len(head) < HEAD_BYTES)


def _stored_bytes(sources: tuple[Source, ...]) -> int | None:
    sizes = [source.stamp()[0] for source in sources]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
