"""Feasigns as tools take them: decimal, hexadecimal or signed, from files, or drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticctr.cube.keys import draw_feasigns, parse_feasign, read_feasigns
from elasticctr.errors import ConfigError, DataError, NotFound

MOST = 2**64 - 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), (str(MOST), MOST), ("0xFF", 255), ("-1", MOST), (f"-{2**63}", 2**63), (hex(MOST), MOST)],
)
def test_every_way_to_write_a_feasign(text: str, expected: int) -> None:
    assert parse_feasign(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1.0", str(MOST + 1), f"-{2**63 + 1}", f"-{2**64}", "1e3", "0x"])
def test_what_is_no_feasign_is_said(text: str) -> None:
    with pytest.raises(DataError):
        parse_feasign(text)


def test_a_file_has_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"1\n\n  -1 \n0x10\n{MOST}")
    found = read_feasigns(tmp_path / "keys")
    assert found.dtype == np.uint64 and found.tolist() == [1, MOST, 16, MOST]


def test_mistakes_in_a_file_have_their_line(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("1\n\nx\n")
    with pytest.raises(DataError) as caught:
        read_feasigns(tmp_path / "keys")
    assert (caught.value.path, caught.value.line) == (str(tmp_path / "keys"), 3)
    (tmp_path / "keys").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError):
        read_feasigns(tmp_path / "keys")
    with pytest.raises(NotFound, match="none"):
        read_feasigns(tmp_path / "none")


@pytest.mark.parametrize("zipf", [None, 1.2])
def test_drawn_ones_are_in_range_and_the_same_for_a_seed(zipf: float | None) -> None:
    found = draw_feasigns(1000, 20_000, zipf, seed=3)
    assert found.dtype == np.uint64 and len(found) == 20_000 and found.max() < 1000
    assert np.array_equal(found, draw_feasigns(1000, 20_000, zipf, seed=3))
    assert not np.array_equal(found, draw_feasigns(1000, 20_000, zipf, seed=4))


def test_zipf_draws_few_feasigns_mostly() -> None:
    def share_of_ten(zipf: float | None) -> float:
        counts = np.bincount(draw_feasigns(1000, 50_000, zipf).astype(np.int64), minlength=1000)
        return float(np.sort(counts)[-10:].sum() / counts.sum())

    assert share_of_ten(None) < 0.02 and share_of_ten(1.5) > 0.5


@pytest.mark.parametrize(("among", "count", "zipf"), [(0, 1, None), (1, 0, None), (5, 5, 1.0), (5, 5, float("nan"))])
def test_nothing_to_draw_from_is_a_config_error(among: int, count: int, zipf: float | None) -> None:
    with pytest.raises(ConfigError):
        draw_feasigns(among, count, zipf)
