"""Cuts a stream of text at line ends into blocks that a parser takes whole.

Memory is bounded by `max_line_bytes` whatever the stream holds: a longer line, or binary bytes without any line end,
is passed over and reported as a bad line. Where blocks are cut depends on the bytes alone, so reading from a block's
offset gives the same blocks again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from elasticctr import _native
from elasticctr.data.formats.parser import BadLine

BLOCK_BYTES = 4 << 20
MAX_LINE_BYTES = 16 << 20
_BOM = b"\xef\xbb\xbf"


class Readable(Protocol):
    def read_into(self, buffer: memoryview) -> int:
        """Fills `buffer` as far as the stream goes; less than its length means the end."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines, the last of the stream possibly without its line end."""

    data: memoryview
    line: int  # number of the first line
    offset: int  # of the first line in the decompressed stream
    bad: tuple[BadLine, ...] = ()  # in place of `data`: the line here is over-long


def iter_blocks(
    stream: Readable,
    *,
    offset: int = 0,
    line: int = 1,
    block_bytes: int = BLOCK_BYTES,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[Block]:
    """Blocks of a stream that stands at `offset`, the start of line number `line`."""
    bytes_ahead = _Ahead(stream)
    block_bytes = min(block_bytes, max_line_bytes)
    while True:
        size = block_bytes
        # A line may need more than a block, and one byte more than its limit to show that it ends there.
        while True:
            buffer = np.empty(size, np.uint8).data
            filled = bytes_ahead.fill(buffer)
            is_last = filled < size
            cut, line_ends = _native.cut_lines(buffer[:filled])
            cut = filled if is_last else cut
            if cut or is_last or size > max_line_bytes:
                break
            bytes_ahead.give_back(buffer[:filled])
            size = min(2 * size, max_line_bytes + 1)
        if cut:
            start = len(_BOM) if offset == 0 and buffer[: len(_BOM)] == _BOM else 0
            yield Block(buffer[start:cut], line, offset)
            bytes_ahead.give_back(buffer[cut:filled])
            line += line_ends
            offset += cut
        elif not is_last:
            length, is_last = bytes_ahead.pass_line(filled)
            reason = f"a line of {length} bytes; max_line_bytes is {max_line_bytes}"
            yield Block(memoryview(b""), line, offset, (BadLine(line, reason),))
            line += 1
            offset += length + 1
        if is_last:
            return


class _Ahead:
    """A stream to which bytes can be given back."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._held = memoryview(b"")

    def give_back(self, data: memoryview) -> None:
        """`data` comes before whatever is held. Copies, so that a block given out keeps no other alive."""
        self._held = memoryview(bytes(data) + bytes(self._held))

    def fill(self, view: memoryview) -> int:
        """Fills `view` as far as the stream goes; less than its length means the end."""
        held = min(len(self._held), len(view))
        view[:held] = self._held[:held]
        self._held = self._held[held:]
        return held + (self._stream.read_into(view[held:]) if held < len(view) else 0)

    def pass_line(self, length: int) -> tuple[int, bool]:
        """Drops bytes up to and with the next line end: (`length` plus those before it, whether the stream ended)."""
        while True:
            buffer = bytearray(1 << 20)
            filled = self.fill(memoryview(buffer))
            end = buffer.find(b"\n", 0, filled)
            if end >= 0:
                self.give_back(memoryview(buffer)[end + 1 : filled])
                return length + end, False
            length += filled
            if filled < len(buffer):
                return length, True
