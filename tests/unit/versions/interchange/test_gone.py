"""The file of feasigns that a delta takes away: written, read back in pieces, and refused if it holds anything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from elasticctr.errors import DataError
from elasticctr.storage import open_store, resolve
from elasticctr.versions.interchange import RowInfo, gone
from elasticctr.versions.interchange.gone import GONE, WithGone, write_gone
from elasticctr.versions.interchange.rows import Block

BIG = 2**64 - 1


class NoRows:
    info = RowInfo("fp32", 4, 16)
    count = 0

    def blocks(self) -> Iterator[Block]:
        yield from ()

    def gone(self) -> Iterator[NDArray[np.uint64]]:
        yield from ()


def read(path: Path) -> list[int]:
    # A file whose name starts with a dot is passed over in directories, not when it is named.
    (source,) = resolve(str(path))
    return [int(feasign) for block in WithGone(NoRows(), source).gone() for feasign in block]


@pytest.mark.parametrize("read_bytes", [8 << 20, 64, 65, 100])
def test_what_is_written_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int) -> None:
    monkeypatch.setattr(gone, "_READ_BYTES", read_bytes)
    feasigns = [0, BIG, *range(10**17, 10**17 + 100)]
    blocks = [np.array(part, np.uint64) for part in ([], feasigns[:50], [], feasigns[50:])]
    assert write_gone(open_store(str(tmp_path)), "rows" + GONE, blocks) == len(feasigns)
    assert (tmp_path / ("rows" + GONE)).read_text().split() == [str(feasign) for feasign in feasigns]
    assert read(tmp_path / ("rows" + GONE)) == feasigns


def test_nothing_gone_is_no_file(tmp_path: Path) -> None:
    assert write_gone(open_store(str(tmp_path)), "rows" + GONE, [np.zeros(0, np.uint64)]) == 0
    assert list(tmp_path.iterdir()) == []


def test_files_of_others_may_end_without_a_line_end(tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("1\r\n\n 2\n3")
    assert read(tmp_path / "gone") == [1, 2, 3]
    (tmp_path / "gone").write_text("")
    assert read(tmp_path / "gone") == []


@pytest.mark.parametrize("text", ["x", "-1", "1.0", "1,2", str(BIG + 1), "1" * 21, "1\n\xff\n", "9" * 200])
def test_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "gone").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match="gone"):
        read(tmp_path / "gone")
