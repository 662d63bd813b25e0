"""A part of a text file as a source of its own: the lines that start inside a range of bytes.

Adjacent ranges share no line and skip none, wherever they are cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from elasticctr.storage.locations import Source
from elasticctr.storage.streams import Stream

_SCAN_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Span(Source):
    """The source up to and including the line that holds byte `end - 1`."""

    end: int = 0

    def open(self, offset: int = 0) -> Stream:
        return _Until(Source.open(self, offset), max(self.end - 1 - offset, -1))  # type: ignore[return-value]


def first_line_from(source: Source, start: int) -> int | None:
    """Where the first line at or after byte `start` begins; None if there is no such line."""
    if start == 0:
        return 0
    buffer = bytearray(_SCAN_BYTES)
    at = start - 1
    with source.open(at) as stream:
        while filled := stream.read_into(memoryview(buffer)):
            end = buffer.find(b"\n", 0, filled)
            if end >= 0:
                return at + end + 1
            at += filled
    return None


class _Until:
    """A stream that ends with the first line end at or after `last` bytes; -1 means at once."""

    def __init__(self, stream: Stream, last: int) -> None:
        self._stream = stream
        self._left = last  # bytes before those that are searched
        self._is_over = last < 0

    def read_into(self, buffer: memoryview) -> int:
        filled = 0
        while filled < len(buffer) and not self._is_over:
            rest = buffer[filled:]
            if self._left > 0:
                count = self._stream.read_into(rest[: self._left])
                self._left -= count
                self._is_over = count == 0
            else:
                # Only a line or two remain: small pieces, so that little of the next range is read.
                piece = rest[:_SCAN_BYTES]
                count = self._stream.read_into(piece)
                end = bytes(piece[:count]).find(b"\n")
                self._is_over = count == 0 or end >= 0
                count = end + 1 if end >= 0 else count
            filled += count
        return filled

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> _Until:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
