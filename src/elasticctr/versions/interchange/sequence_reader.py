"""Reads SequenceFiles of fixed-width records as a stream, without a Python step per record.

A file is runs of records with a sync marker after each. Writers put the same number of records in every run, so once
one whole run was seen, all that follow are checked and taken as one strided array. Exceptions to the pattern are read
run by run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elasticctr.errors import Corruption, DataError
from elasticctr.storage import Source
from elasticctr.versions.interchange.rows import Block, Feasigns, RowInfo, interpret
from elasticctr.versions.interchange.sequence_layout import (
    ESCAPE,
    Header,
    RecordLayout,
    first_record,
    parse_header,
)

_BUFFER_BYTES = 8 << 20
_HEAD_BYTES = 4 << 20  # no header is longer: names and metadata are limited


class SequenceRows:
    """The records of one or more SequenceFiles, all of one width."""

    def __init__(self, files: Sequence[Source], encoding: str | None = None) -> None:
        self._files = files
        for file in files:
            layout = next((parser.layout for parser in _parsers(file) if parser.layout is not None), None)
            if layout is not None:
                self.info: RowInfo = interpret(layout.value_bytes, encoding, file.path)
                return
        raise DataError("holds no records", files[0].path)

    @property
    def count(self) -> int | None:
        return None

    def blocks(self) -> Iterator[Block]:
        for file in self._files:
            for parser in _parsers(file):
                width = parser.layout.value_bytes if parser.layout else self.info.row_bytes
                if width != self.info.row_bytes:
                    raise DataError(
                        f"values of {width} bytes; those in earlier files have {self.info.row_bytes}", file.path
                    )
                yield from parser.take()

    def gone(self) -> Iterator[Feasigns]:
        return iter(())


def _parsers(file: Source) -> Iterator[_RecordParser]:
    """Yields the same parser each time it has parsed another buffer of the file."""
    buffer = bytearray(_BUFFER_BYTES)
    view = memoryview(buffer)
    with file.open() as stream:
        filled = stream.read_into(view)
        parser = _RecordParser(parse_header(bytes(view[: min(filled, _HEAD_BYTES)]), file.path), file.path)
        start, used = 0, parser.header.size
        while True:
            final = filled < len(buffer)
            used = parser.parse(np.frombuffer(buffer, np.uint8, filled), used, start, final)
            yield parser
            if final:
                return
            rest = filled - used
            buffer[:rest] = buffer[used:filled]
            start, used = start + used, 0
            filled = rest + stream.read_into(view[rest:])


class _RecordParser:
    """Keeps its place among runs and markers, and the blocks parsed last."""

    def __init__(self, header: Header, path: str) -> None:
        self.header = header
        self.layout: RecordLayout | None = None
        self._path = path
        self._sync = np.frombuffer(ESCAPE + header.marker, np.uint8)
        self._period = 0  # records per run, known once a whole one was seen
        self._run = 0  # records since the last marker
        self._blocks: list[Block] = []

    def take(self) -> Iterator[Block]:
        blocks, self._blocks = self._blocks, []
        if len(blocks) > 1:
            keys, values = zip(*blocks, strict=True)
            blocks = [(np.concatenate(keys), np.concatenate(values))]
        return iter(blocks)

    def parse(self, data: npt.NDArray[np.uint8], used: int, start: int, final: bool) -> int:
        """Parses whole records of `data` from byte `used` on; its byte 0 is byte `start` of the file.
        Returns how many bytes were consumed."""
        while used < len(data):
            if len(data) - used < 4:
                break
            if bytes(data[used : used + 4]) == ESCAPE:
                if len(data) - used < len(self._sync):
                    break
                self._check_marker(data, used, start)
                used += len(self._sync)
                self._period, self._run = self._run, 0
                continue
            if self.layout is None:
                if len(data) - used < 8 and not final:
                    break
                self.layout = first_record(self.header, bytes(data[used : used + 8]), start + used, self._path)
            if self._run == 0 and self._period:
                used = self._take_periods(self.layout, data, used)
            before = used
            used = self._take_run(self.layout, data, used)
            if used == before:
                rest = len(data) - used
                if rest >= self.layout.stride:
                    self._refuse(self.layout, data, used, start)
                if rest >= 4 and bytes(data[used : used + 4]) == ESCAPE:
                    continue
                break
        if final and used < len(data):
            raise Corruption(f"{self._path}: byte {start + used}: ends inside a record; fetch it again")
        return used

    def _take_periods(self, layout: RecordLayout, data: npt.NDArray[np.uint8], used: int) -> int:
        """Takes all whole runs, with markers, that look like the last one."""
        size = self._period * layout.stride + len(self._sync)
        count = (len(data) - used) // size
        if count == 0:
            return used
        strides = (size, layout.stride)
        records = np.ndarray((count, self._period), layout.dtype, data.data, used, strides)
        markers = np.ndarray(
            (count, len(self._sync)), np.uint8, data.data, used + self._period * layout.stride, (size, 1)
        )
        good = layout.matches(records).all(axis=1) & (markers == self._sync).all(axis=1)
        count = count if good.all() else int(good.argmin())
        self._keep(records[:count])
        return used + count * size

    def _take_run(self, layout: RecordLayout, data: npt.NDArray[np.uint8], used: int) -> int:
        """Takes records up to the next marker, or as many as guessed."""
        count = min((len(data) - used) // layout.stride, max(64, 2 * self._period))
        records = np.ndarray((count,), layout.dtype, data.data, used)
        good = layout.matches(records)
        count = count if good.all() else int(good.argmin())
        self._keep(records[:count])
        self._run += count
        return used + count * layout.stride

    def _keep(self, records: npt.NDArray[Any]) -> None:
        if records.size == 0:
            return
        keys = records["key"].astype(np.uint64).reshape(-1)
        values = np.ascontiguousarray(records["value"]).reshape(-1)
        self._blocks.append((keys, values.view(np.uint8).reshape(len(keys), -1)))

    def _check_marker(self, data: npt.NDArray[np.uint8], used: int, start: int) -> None:
        if not np.array_equal(data[used : used + len(self._sync)], self._sync):
            raise Corruption(
                f"{self._path}: byte {start + used}: a wrong sync marker; the file is damaged, fetch it again"
            )

    def _refuse(self, layout: RecordLayout, data: npt.NDArray[np.uint8], used: int, start: int) -> None:
        """Says what is wrong with the record at `used`."""
        if bytes(data[used : used + 4]) == ESCAPE:
            return
        other = first_record(self.header, bytes(data[used : used + 8]), start + used, self._path)
        where = f"byte {start + used}: "
        if other != layout:
            raise DataError(
                f"{where}a value of {other.value_bytes} bytes; those before have {layout.value_bytes}", self._path
            )
        raise Corruption(f"{self._path}: {where}lengths inside a record contradict each other")
