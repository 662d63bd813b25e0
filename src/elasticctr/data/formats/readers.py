"""One reader per family of formats: a source → blocks that can be parsed by themselves → parsed samples.

Blocks are cut in one thread and parsed in several. A block's place is enough to get it and all after it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from elasticctr.data.formats.blocks import Block, iter_blocks
from elasticctr.data.formats.parser import Parsed, Parser
from elasticctr.data.schema import Format, Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import DataError
from elasticctr.storage import Source


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where a block starts: a file by its number in reading order, and what the reader needs to go there."""

    file: int = 0
    offset: int = 0
    line: int = 1


class Reader(Protocol):
    def blocks(self, source: Source, offset: int, line: int) -> Iterator[tuple[int, int, Any]]:
        """(offset, line, block) for every block of the source from one's offset and line on."""
        ...

    def parse(self, block: Any) -> Parsed:
        """The samples of a block. Called from several threads at once."""
        ...


class TextReader:
    """Formats of the native parser, one sample per line."""

    def __init__(self, schema: Schema, options: ReadOptions, require_label: bool) -> None:
        self._options = options
        # One thread per block: several blocks are parsed at once, and the shared pool stays free for training.
        self._parser = Parser(
            schema, keep=options.fraction, split_seed=options.split_seed, threads=1, require_label=require_label
        )

    def blocks(self, source: Source, offset: int, line: int) -> Iterator[tuple[int, int, Any]]:
        with source.open(offset) as stream:
            blocks = iter_blocks(
                stream,
                offset=offset,
                line=line,
                block_bytes=self._options.block_bytes,
                max_line_bytes=self._options.max_line_bytes,
            )
            for block in blocks:
                if block.offset == 0 and bytes(block.data[:4]) == b"PAR1":
                    raise DataError("is a Parquet file; set format: parquet in the schema", source.path)
                yield block.offset, block.line, block

    def parse(self, block: Block) -> Parsed:
        parsed = self._parser.parse(block.data, block.line)
        if not block.bad:
            return parsed
        return replace(
            parsed,
            lines=parsed.lines + len(block.bad),
            bad=[*block.bad, *parsed.bad],
            bad_count=parsed.bad_count + len(block.bad),
        )


def make_reader(schema: Schema, options: ReadOptions, *, require_label: bool = True) -> Reader:
    """The reader of the schema's format. Without `require_label` a missing label is NaN, for logs to be scored."""
    if schema.format is Format.CSV:
        from elasticctr.data.formats.csv_reader import CsvReader

        return CsvReader(schema, options, require_label)
    if schema.format is Format.PARQUET:
        from elasticctr.data.formats.parquet_reader import ParquetReader

        return ParquetReader(schema, options, require_label)
    return TextReader(schema, options, require_label)
