"""Parquet files, some thousand rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elasticctr import _native
from elasticctr.data.formats.arrow_errors import explain_arrow
from elasticctr.data.formats.columns import flatten, needed_columns, to_batch
from elasticctr.data.formats.csv_reader import check_names
from elasticctr.data.formats.parser import BadLine, Parsed
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.data.split import keep_hashes
from elasticctr.errors import ElasticCTRError
from elasticctr.storage import Source

ROWS = 1 << 15
_SHOWN_BAD = 100


@dataclass(frozen=True, slots=True)
class _ParquetBlock:
    rows: pa.RecordBatch
    first_row: int


def row_group_bytes(source: Source) -> list[int] | None:
    """The size of each row group of a file; None where its footer can only be had with all of it."""
    with source.open_raw() as file:
        if not file.seekable():
            return None
        try:
            metadata = pq.ParquetFile(file).metadata
        except (pa.ArrowException, OSError, MemoryError) as e:
            raise _explain(source, e) from None
        return [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]


def _explain(source: Source, error: Exception) -> ElasticCTRError:
    return explain_arrow(error, source.path, "not a whole Parquet file: {}; fetch or write it again")


class ParquetReader:
    """Rows are numbered from 1, through all row groups of a file."""

    def __init__(self, schema: Schema, options: ReadOptions, require_label: bool) -> None:
        self._schema = schema
        self._options = options
        self._require_label = require_label
        self._needed = needed_columns(schema)

    def blocks(self, source: Source, offset: int, line: int) -> Iterator[tuple[int, int, Any]]:
        """An offset is the number of rows before a block."""
        return self.group_blocks(source, 0, None, offset)

    def group_blocks(
        self, source: Source, start: int, end: int | None, offset: int = 0
    ) -> Iterator[tuple[int, int, Any]]:
        """As `blocks`, of the row groups [start, end) alone."""
        with source.open_seekable() as file:
            try:
                parquet = pq.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)
                check_names(parquet.schema_arrow.names, self._needed, source.path)
                first = 0
                for group in range(parquet.num_row_groups):
                    group_rows = parquet.metadata.row_group(group).num_rows
                    if start <= group and (end is None or group < end) and first + group_rows > offset:
                        yield from self._group(parquet, group, first, offset)
                    first += group_rows
            except (pa.ArrowException, OSError, MemoryError) as e:
                raise _explain(source, e) from None

    def _group(self, parquet: pq.ParquetFile, group: int, first: int, offset: int) -> Iterator[tuple[int, int, Any]]:
        batches = parquet.iter_batches(ROWS, row_groups=[group], columns=self._needed, use_threads=False)
        for batch in batches:
            if first + batch.num_rows > offset:
                skip = max(offset - first, 0)
                yield first + skip, first + skip + 1, _ParquetBlock(batch.slice(skip), first + skip + 1)
            first += batch.num_rows

    def parse(self, block: _ParquetBlock) -> Parsed:
        rows = block.rows
        columns = {name: flatten(rows.column(name)) for name in self._needed}
        batch, wrong = to_batch(self._schema, columns, rows.num_rows, is_text=False, require_label=self._require_label)
        keep = np.ones(rows.num_rows, np.bool_)
        if self._options.fraction != (0.0, 1.0):
            seed = self._options.split_seed
            hashes = _native.hash_rows(batch.labels, batch.dense, batch.weights, batch.values, batch.offsets, seed)
            keep = keep_hashes(hashes, self._options.fraction)
        keep[list(wrong)] = False
        bad = [BadLine(block.first_row + row, reason) for row, reason in sorted(wrong.items())]
        kept = batch if keep.all() else batch.take(np.flatnonzero(keep))
        return Parsed(kept, rows.num_rows, block.first_row + rows.num_rows, bad[:_SHOWN_BAD], len(bad))
