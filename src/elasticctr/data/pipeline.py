"""Sources → parsed blocks in reading order, with bad lines counted and limited.

Several blocks are parsed at once; their order and content do not depend on how many.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from elasticctr.data.batch import Batch
from elasticctr.data.formats.parser import BadLine, Parsed
from elasticctr.data.formats.readers import FilePlace, Reader
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import DataError
from elasticctr.storage import Source

_EXAMPLES = 10
_ENOUGH_LINES = 1000


Blocks = Generator[tuple[FilePlace, str, Any], None, None]


class SampleRows(Protocol):
    """Samples that batches can be cut from."""

    def __len__(self) -> int: ...

    def slice(self, start: int, stop: int) -> Batch: ...


@dataclass(frozen=True, slots=True)
class Stats:
    """What has been read so far."""

    lines: int = 0
    samples: int = 0
    bad: int = 0
    examples: tuple[str, ...] = ()  # the first bad lines, as path:line: reason

    def describe(self) -> str:
        return "; ".join(self.examples[:3])


Rows = TypeVar("Rows", bound=SampleRows, covariant=True)


@dataclass(frozen=True, slots=True)
class Portion(Generic[Rows]):
    """The samples of one block of a file or one part of a cached sample set, and what was left out."""

    place: FilePlace
    rows: Rows
    lines: int
    path: str = ""
    bad: Sequence[BadLine] = ()
    bad_count: int = 0


def read_portions(
    sources: Sequence[Source], reader: Reader, start: FilePlace, workers: int
) -> Generator[Portion[Batch], None, None]:
    """Every block from `start` on, parsed. With 0 workers everything happens in the calling thread."""
    if workers == 0:
        for place, path, block in _blocks(sources, reader, start):
            yield _portion(place, path, reader.parse(block))
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="elasticctr-parse")
    blocks = _blocks(sources, reader, start)
    pending: deque[tuple[FilePlace, str, Future[Parsed]]] = deque()
    try:
        for place, path, block in blocks:
            pending.append((place, path, pool.submit(reader.parse, block)))
            del block
            if len(pending) > workers:
                first_place, first_path, parsed = pending.popleft()
                yield _portion(first_place, first_path, parsed.result())
        while pending:
            first_place, first_path, parsed = pending.popleft()
            yield _portion(first_place, first_path, parsed.result())
    finally:
        blocks.close()
        pool.shutdown(wait=True, cancel_futures=True)


def _portion(place: FilePlace, path: str, parsed: Parsed) -> Portion[Batch]:
    return Portion(place, parsed.batch, parsed.lines, path, parsed.bad, parsed.bad_count)


def default_workers(options: ReadOptions) -> int:
    """Parsing threads to use, besides the one that reads."""
    return options.workers or min(4, len(os.sched_getaffinity(0)))


def _blocks(sources: Sequence[Source], reader: Reader, start: FilePlace) -> Blocks:
    for number in range(start.file, len(sources)):
        source = sources[number]
        first = start if number == start.file else FilePlace(number)
        for offset, line, block in reader.blocks(source, first.offset, first.line):
            yield FilePlace(number, offset, line), source.path, block
            del block


class LineCounter:
    """Counts lines and samples."""

    def __init__(self, stats: Stats) -> None:
        self.stats = stats

    def count(self, portion: Portion[SampleRows]) -> None:
        stats = self.stats
        room = _EXAMPLES - len(stats.examples)
        self.stats = Stats(
            lines=stats.lines + portion.lines,
            samples=stats.samples + len(portion.rows),
            bad=stats.bad + portion.bad_count,
            examples=stats.examples + tuple(f"{portion.path}:{b.line}: {b.reason}" for b in portion.bad[:room]),
        )

    def finish(self) -> None:
        """Called at the end of the data."""


class BadLineLimit(LineCounter):
    """Counts, and raises when too many lines are bad."""

    def __init__(self, schema: Schema, options: ReadOptions, stats: Stats, first_path: str = "") -> None:
        """`first_path` names the data in messages about all of it."""
        super().__init__(stats)
        self._first_path = first_path
        self._format = schema.format.value
        self._options = options

    def count(self, portion: Portion[SampleRows]) -> None:
        if portion.bad_count and self._options.on_bad == "fail":
            raise DataError(portion.bad[0].reason, portion.path, portion.bad[0].line)
        super().count(portion)
        self.check()

    def check(self) -> None:
        """Raises DataError when too large a part of the lines counted so far is bad."""
        stats, limit = self.stats, self._options.max_bad_fraction
        if stats.lines >= _ENOUGH_LINES and stats.bad > limit * stats.lines:
            raise DataError(
                f"{stats.bad} of the first {stats.lines} lines are bad, more than max_bad_fraction {limit:g} allows; "
                f"is the format really {self._format!r}? {stats.describe()}"
            )

    def finish(self) -> None:
        stats = self.stats
        if stats.samples:
            return
        if stats.lines == 0:
            raise DataError("no samples: this file is empty, and so is any other of the data", self._first_path)
        if stats.bad == stats.lines:
            raise DataError(
                f"all {stats.lines} lines are bad; is the format really {self._format!r}? {stats.describe()}"
            )
        low, high = self._options.fraction
        raise DataError(
            f"no samples: none of {stats.lines} lines falls into fraction [{low:g}, {high:g})", self._first_path
        )
