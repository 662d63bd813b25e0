"""A stream is cut into blocks of whole lines, however long its lines are."""

from __future__ import annotations

import io
import random
import tracemalloc

import pytest

from elasticctr.data.formats.blocks import Block, iter_blocks


class Stream:
    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read_into(self, buffer: memoryview) -> int:
        return self._file.readinto(buffer)


def blocks_of(data: bytes, offset: int = 0, line: int = 1, block: int = 1024, limit: int = 4096) -> list[Block]:
    stream = Stream(data[offset:])
    return list(iter_blocks(stream, offset=offset, line=line, block_bytes=block, max_line_bytes=limit))


def lines_of(blocks: list[Block]) -> list[tuple[int, bytes]]:
    found = []
    for block in blocks:
        for i, text in enumerate(bytes(block.data).splitlines(keepends=True)):
            found.append((block.line + i, text))
    return found


def test_whole_lines_with_their_numbers() -> None:
    data = b"".join(b"%d " % i + b"x" * (i % 50) + b"\n" for i in range(1000))
    blocks = blocks_of(data)
    assert len(blocks) > 10
    assert lines_of(blocks) == [(i + 1, text) for i, text in enumerate(data.splitlines(keepends=True))]
    for block in blocks:
        assert data[block.offset :].startswith(bytes(block.data))


def test_a_last_line_without_line_end() -> None:
    assert lines_of(blocks_of(b"a\nb")) == [(1, b"a\n"), (2, b"b")]


@pytest.mark.parametrize("size", [1023, 1024, 1025, 2048])
def test_a_stream_that_ends_with_a_block(size: int) -> None:
    data = (b"y" * 99 + b"\n") * 50
    assert b"".join(bytes(b.data) for b in blocks_of(data[:size])) == data[:size]


def test_nothing_in_an_empty_stream() -> None:
    assert blocks_of(b"") == []


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert lines_of(blocks_of(b"\xef\xbb\xbfa\nb\n")) == [(1, b"a\n"), (2, b"b\n")]


@pytest.mark.parametrize(("length", "is_bad"), [(1024, False), (4095, False), (4096, False), (4097, True)])
@pytest.mark.parametrize("ends", [True, False])
def test_a_line_over_the_limit_is_bad_and_one_at_the_limit_is_not(length: int, is_bad: bool, ends: bool) -> None:
    long = b"z" * length + (b"\n" if ends else b"")
    data = b"a\n" + long + (b"b\n" if ends else b"")
    blocks = blocks_of(data)
    bad = [entry for block in blocks for entry in block.bad]
    assert [entry.line for entry in bad] == ([2] if is_bad else [])
    rest = [(3, b"b\n")] if ends else []
    assert lines_of(blocks) == [(1, b"a\n"), *([] if is_bad else [(2, long)]), *rest]
    if is_bad:
        assert str(length) in bad[0].reason


def test_reading_from_any_block_gives_the_same_blocks() -> None:
    rng = random.Random(7)
    for _ in range(30):
        data = b"".join(b"q" * min(int(rng.paretovariate(0.5)), 9000) + b"\n" for _ in range(200))
        blocks = blocks_of(data)
        for i, block in enumerate(blocks):
            again = blocks_of(data, block.offset, block.line)
            assert [(b.line, b.offset, bytes(b.data), b.bad) for b in again] == [
                (b.line, b.offset, bytes(b.data), b.bad) for b in blocks[i:]
            ]


def test_a_gigabyte_line_costs_no_memory() -> None:
    class Endless:
        """1 GB of one line, then a good one."""

        left = 1 << 30
        tail = b"\ngood\n"

        def read_into(self, buffer: memoryview) -> int:
            filled = min(len(buffer), self.left)
            buffer[:filled] = b"x" * filled
            self.left -= filled
            if filled < len(buffer):
                rest = self.tail[: len(buffer) - filled]
                buffer[filled : filled + len(rest)] = rest
                self.tail = self.tail[len(rest) :]
                filled += len(rest)
            return filled

    tracemalloc.start()
    try:
        blocks = list(iter_blocks(Endless(), block_bytes=1 << 20, max_line_bytes=4 << 20))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines_of(blocks) == [(2, b"good\n")]
    assert [entry.line for block in blocks for entry in block.bad] == [1]
    assert str(1 << 30) in blocks[0].bad[0].reason
    assert peak < 32 << 20
