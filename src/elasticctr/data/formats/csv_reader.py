"""CSV files: one sample per line, cut into blocks like any text and read by pyarrow."""

from __future__ import annotations

import csv
import difflib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.data.formats.blocks import Block, iter_blocks
from elasticctr.data.formats.columns import flatten, needed_columns, to_batch
from elasticctr.data.formats.parser import BadLine, Parsed
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.data.split import keep_hashes
from elasticctr.errors import DataError
from elasticctr.storage import Source

_SHOWN_BAD = 100


@dataclass(frozen=True, slots=True)
class _CsvBlock:
    block: Block
    names: list[str]  # of all columns of the file


@dataclass(frozen=True, slots=True)
class _CsvRows:
    table: pa.Table
    lines: NDArray[np.int64]  # number of each row's line


class CsvReader:
    """A quoted cell ends on its line. Without a header, columns are named 0, 1, 2, …"""

    def __init__(self, schema: Schema, options: ReadOptions, require_label: bool) -> None:
        self._schema = schema
        self._options = options
        self._require_label = require_label
        self._needed = needed_columns(schema)

    def blocks(self, source: Source, offset: int, line: int) -> Iterator[tuple[int, int, Any]]:
        names, header_bytes = self._read_names(source)
        if names and offset == 0 and header_bytes:
            offset, line = header_bytes, 2
        for block in self._blocks(source, offset, line):
            yield block.offset, block.line, _CsvBlock(block, names)

    def parse(self, named: _CsvBlock) -> Parsed:
        block = named.block
        bad = list(block.bad)
        rows: list[_CsvRows] = []
        blank = self._read(bytes(block.data), block.line, named.names, rows, bad)
        keep = self._kept_lines(block)
        batches = [self._to_batch(part, block.line, keep, bad) for part in rows]
        bad.sort(key=lambda entry: entry.line)
        lines = _count_lines(block.data) + len(block.bad)
        empty = pa.table({name: pa.array([], pa.binary()) for name in self._needed})
        batch = Batch.concat(batches or [self._to_batch(_CsvRows(empty, np.zeros(0, np.int64)), block.line, keep, bad)])
        return Parsed(batch, lines - blank, block.line + lines, bad[:_SHOWN_BAD], len(bad))

    def _to_batch(self, rows: _CsvRows, line: int, kept: NDArray[np.bool_] | None, bad: list[BadLine]) -> Batch:
        count = rows.table.num_rows
        columns = {name: flatten(rows.table.column(name)) for name in self._needed}
        batch, wrong = to_batch(self._schema, columns, count, is_text=True, require_label=self._require_label)
        bad += [BadLine(int(rows.lines[row]), reason) for row, reason in wrong.items()]
        keep = np.ones(count, np.bool_) if kept is None else kept[rows.lines - line]
        keep[list(wrong)] = False
        return batch if keep.all() else batch.take(np.flatnonzero(keep))

    def _read(self, data: bytes, line: int, names: list[str], rows: list[_CsvRows], bad: list[BadLine]) -> int:
        """Adds the rows and bad lines of `data`; returns how many lines were blank.

        A stray quote swallows the lines after it. Halving the text until no line goes missing finds the one to blame.
        """
        lines = _count_lines(data)
        if lines == 0:
            return 0
        refused: list[Any] = []
        reason = "a quoted cell does not end"
        try:
            table = self._read_table(data, names, refused)
        except pa.ArrowInvalid as e:
            table, reason = None, str(e)
        if table is None or table.num_rows + len(refused) != lines:
            if lines == 1:
                bad.append(BadLine(line, f"not a CSV row: {reason}"))
                return 0
            cut = _middle(data)
            blank_lines = self._read(data[:cut], line, names, rows, bad)
            return blank_lines + self._read(data[cut:], line + _count_lines(data[:cut]), names, rows, bad)
        at = np.ones(lines, np.bool_)
        for row in refused:
            at[row.number - 1] = False
            cells = f"{row.actual_columns} cells, not {row.expected_columns}"
            bad.append(BadLine(line + row.number - 1, cells))
        blank = _blank_lines(data)
        numbers = np.flatnonzero(at)
        if blank:
            is_row = ~np.isin(numbers, blank)
            table, numbers = table.filter(pa.array(is_row)), numbers[is_row]
        if table.num_rows:
            rows.append(_CsvRows(table, line + numbers))
        return len(blank)

    def _read_table(self, data: bytes, names: list[str], refused: list[Any]) -> pa.Table:
        def refuse(row: Any) -> str:
            refused.append(row)
            return "skip"

        schema = self._schema
        return pacsv.read_csv(
            pa.py_buffer(data),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=pacsv.ParseOptions(
                delimiter=schema.delimiter, ignore_empty_lines=False, invalid_row_handler=refuse
            ),
            convert_options=pacsv.ConvertOptions(
                column_types={name: pa.binary() for name in self._needed},
                include_columns=self._needed,
                null_values=list(schema.null_values),
                strings_can_be_null=True,
            ),
        )

    def _kept_lines(self, block: Block) -> NDArray[np.bool_] | None:
        if self._options.fraction == (0.0, 1.0):
            return None
        hashes = _native.hash_lines(np.frombuffer(block.data, np.uint8), self._options.split_seed)
        return keep_hashes(hashes, self._options.fraction)

    def _blocks(self, source: Source, offset: int, line: int) -> Iterator[Block]:
        sizes = {"block_bytes": self._options.block_bytes, "max_line_bytes": self._options.max_line_bytes}
        with source.open(offset) as stream:
            yield from iter_blocks(stream, offset=offset, line=line, **sizes)

    def _read_names(self, source: Source) -> tuple[list[str], int]:
        """Names of all columns, and the size of the header they come from."""
        first = next(self._blocks(source, 0, 1), None)
        if first is None:
            return [], 0
        if first.bad:
            raise DataError(first.bad[0].reason + "; is it a CSV file?", source.path, 1)
        text, _, _ = bytes(first.data).partition(b"\n")
        if text.startswith(b"PAR1"):
            raise DataError("is a Parquet file; set format: parquet in the schema", source.path)
        cells = next(csv.reader([text.decode(errors="replace").rstrip("\r")], delimiter=self._schema.delimiter), [])
        names = cells if self._schema.header else [str(i) for i in range(len(cells))]
        check_names(names, self._needed, source.path, 1)
        # The byte order mark that a block leaves out is part of the file.
        mark = 3 if self._starts_with_mark(source) else 0
        return names, (mark + len(text) + 1) if self._schema.header else 0

    def _starts_with_mark(self, source: Source) -> bool:
        head = bytearray(3)
        with source.open() as stream:
            stream.read_into(memoryview(head))
        return bytes(head) == b"\xef\xbb\xbf"


def check_names(names: list[str], needed: list[str], path: str, line: int | None = None) -> None:
    """Raises DataError unless every needed column is among `names`, once."""
    for name in needed:
        if name in names:
            continue
        close = difflib.get_close_matches(name, names, n=1)
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        hint = f"did you mean {close[0]!r}?" if close else f"its columns are: {shown}"
        raise DataError(f"no column {name!r}; {hint}", path, line)
    counts = Counter(names)
    twice = next((name for name in needed if counts[name] > 1), None)
    if twice is not None:
        raise DataError(f"column {twice!r} is there twice", path, line)


def _count_lines(data: bytes | memoryview) -> int:
    text = bytes(data)
    return text.count(b"\n") + (not text.endswith(b"\n") if text else 0)


def _blank_lines(data: bytes) -> list[int]:
    """Positions of lines without a character, which pyarrow would give as rows of nulls."""
    if not (data.startswith((b"\n", b"\r\n")) or b"\n\n" in data or b"\n\r\n" in data):
        return []
    lines = data.removesuffix(b"\n").split(b"\n")
    return [i for i, line in enumerate(lines) if line in (b"", b"\r")]


def _middle(data: bytes) -> int:
    """Where the line after the middle one starts."""
    cut = data.rfind(b"\n", 0, len(data) // 2) + 1
    return cut or data.index(b"\n") + 1
