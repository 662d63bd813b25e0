"""Opens rows in any of these formats, recognised by their first bytes, and makes writers by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from elasticctr.errors import ConfigError, DataError
from elasticctr.storage import Source, Store, resolve
from elasticctr.versions.interchange.columnar import ColumnarRows, ParquetRowWriter
from elasticctr.versions.interchange.gone import GONE, WithGone
from elasticctr.versions.interchange.min_max import MinMaxRows
from elasticctr.versions.interchange.rows import RowInfo, RowSource, RowWriter
from elasticctr.versions.interchange.sequence_reader import SequenceRows
from elasticctr.versions.interchange.sequence_writer import SequenceWriter
from elasticctr.versions.interchange.text import TextRows, TextRowWriter

FORMATS = ("sequence", "hadoop", "text", "parquet")
SUFFIXES = {"sequence": ".seq", "hadoop": ".seq", "text": ".txt", "parquet": ".parquet"}
MIN_MAX = "min_max"


def open_rows(location: str, encoding: str | None = None) -> RowSource:
    """The rows of a file, glob or directory, local or remote.

    `encoding` says what the values of SequenceFiles and binary columns are: raw, fp32 (the default), fp16, int8, or
    min_max (8-bit rows of Paddle's tools, read as fp32).
    """
    files = resolve(location)
    kinds = {_kind(file.path, _head(file)) for file in files}
    if len(kinds) > 1:
        raise DataError(f"files of several formats: {', '.join(sorted(kinds))}; name files of one format", location)
    kind = kinds.pop()
    stored = "raw" if encoding == MIN_MAX else encoding
    source: RowSource
    if kind == "sequence":
        source = SequenceRows(files, stored)
    elif kind == "columnar":
        source = ColumnarRows(files, stored)
    else:
        source = TextRows(files)
        if encoding not in (None, "fp32"):
            raise ConfigError(f"{location}: text rows are floats; encoding {encoding} is for binary formats")
    if encoding == MIN_MAX:
        source = MinMaxRows(source, location)
    filesystem = files[0].filesystem
    beside = Source(f"{location.rstrip('/')}/{GONE}", filesystem)
    return WithGone(source, beside) if filesystem.is_file(beside.path) else source


@contextmanager
def open_writer(store: Store, name: str, form: str, info: RowInfo) -> Iterator[RowWriter]:
    """A writer of a file of rows described by `info`. The complete file exists once the block has succeeded. Sequence
    and hadoop files take any encoding; text and Parquet hold floats."""
    if form not in FORMATS:
        raise ConfigError(f"format {form!r} is unknown; known: {', '.join(FORMATS)}")
    if info.encoding != "fp32" and form in ("text", "parquet"):
        raise ConfigError(f"format {form} holds floats, not {info.encoding} rows; decode them first")
    with store.create(name) as file:
        writer: RowWriter
        if form == "text":
            writer = TextRowWriter(file, info.dim)
        elif form == "parquet":
            writer = ParquetRowWriter(file, info.dim)
        else:
            writer = SequenceWriter(file, info.row_bytes, "plain" if form == "sequence" else "hadoop")
        yield writer
        writer.finish()


def _head(file: Source) -> bytes:
    head = memoryview(bytearray(64))
    with file.open() as stream:
        return bytes(head[: stream.read_into(head)])


def _kind(path: str, head: bytes) -> str:
    if head.startswith(b"SEQ"):
        return "sequence"
    if head.startswith((b"PAR1", b"ARROW1")):
        return "columnar"
    if head.strip()[:1].isdigit() or not head.strip():
        return "text"
    raise DataError("is not a SequenceFile, Parquet or Arrow file, nor text of `feasign:v1,v2,…` lines", path)
