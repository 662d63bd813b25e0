"""Spans of a file share no line and leave none out, wherever they are cut."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticctr.storage import span
from elasticctr.storage.locations import Source, resolve
from elasticctr.storage.span import Span, first_line_from


def read(source: Source, start: int, piece: int) -> bytes:
    buffer, found = bytearray(piece), b""
    with source.open(start) as stream:
        while count := stream.read_into(memoryview(buffer)):
            found += bytes(buffer[:count])
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("span") / "log"


@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(st.text("ab", max_size=8), max_size=12),
    ends_with_newline=st.booleans(),
    cuts=st.sets(st.integers(1, 60), max_size=4),
    piece=st.integers(1, 9),
    scanned=st.integers(1, 5),
)
def test_spans_cut_anywhere_are_the_file(
    path: Path, lines: list[str], ends_with_newline: bool, cuts: set[int], piece: int, scanned: int
) -> None:
    data = "\n".join(lines).encode() + b"\n" * ends_with_newline
    path.write_bytes(data)
    (source,) = resolve(str(path))
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span, "_SCAN_BYTES", scanned)
        for low, high in itertools.pairwise(edges):
            start = first_line_from(source, low)
            if start is not None and start < high:
                part = read(Span(source.path, source.filesystem, high), start, piece)
                assert data[start:].startswith(part) and (start == 0 or data[start - 1 : start] == b"\n")
                found.append(part)
    assert b"".join(found) == data
    assert all(part.endswith(b"\n") for part in found[:-1])


def test_no_line_starts_inside_the_last_one(path: Path) -> None:
    path.write_bytes(b"first\nsecond")
    (source,) = resolve(str(path))
    assert [first_line_from(source, start) for start in (0, 1, 6, 7, 12)] == [0, 6, 6, None, None]
