"""Index files are shown, looked up and checked without a server."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from tests.unit.cube.rows import build, draw, rows_of

from elasticctr.cube.build.builder import BuildOptions
from elasticctr.cube.inspect import inspect_directory, inspect_file
from elasticctr.errors import Corruption, NotFound


def test_a_file_is_shown_as_it_is(tmp_path: Path) -> None:
    keys = draw(np.random.default_rng(0), 2000)
    build(tmp_path, 1, keys)
    shown = inspect_file(tmp_path / "m/1/shard-0000-of-0001/t.cube", verify=True, sample=5)
    assert (shown.info.name, shown.info.rows, shown.info.dim, shown.is_verified) == ("m/t", len(keys), 4, True)
    assert 0.7 < shown.load < 0.9
    assert shown.bytes_per_key == pytest.approx(16 + shown.overhead_bytes_per_key)
    assert len(shown.entries) == 5
    for entry in shown.entries:
        assert entry.row == rows_of(1, np.array([entry.feasign], np.uint64))[0].tolist()


def test_keys_are_looked_up_in_the_shard_that_has_them(tmp_path: Path) -> None:
    keys = np.arange(50, dtype=np.uint64)
    build(tmp_path, 1, keys, options=BuildOptions(3))
    shown = inspect_directory(tmp_path / "m/1", keys=[7, 8, 999])
    entries = {entry.feasign: entry for one in shown for entry in one.entries if entry.feasign in (7, 8, 999)}
    assert (entries[7].found, entries[8].found, entries[999].found) == (True, True, False)
    assert entries[8].row == rows_of(1, np.array([8], np.uint64))[0].tolist()


def test_a_tombstone_has_no_row(tmp_path: Path) -> None:
    build(tmp_path, 1, np.arange(5, dtype=np.uint64))
    build(tmp_path, 2, np.array([1], np.uint64), parent=1, gone=np.array([2], np.uint64))
    entries = inspect_file(tmp_path / "m/2/shard-0000-of-0001/t.cube").entries
    assert {entry.feasign: entry.found for entry in entries} == {1: True, 2: False}


@pytest.mark.parametrize("at", [100, 4100, -9000, -2])
def test_damage_is_found(tmp_path: Path, at: int) -> None:
    build(tmp_path, 1, draw(np.random.default_rng(0), 2000))
    path = tmp_path / "m/1/shard-0000-of-0001/t.cube"
    data = bytearray(path.read_bytes())
    data[at] ^= 16
    path.write_bytes(data)
    with pytest.raises(Corruption, match=r"t\.cube"):
        inspect_file(path, verify=True)
    with pytest.raises(Corruption, match=r"t\.cube"):
        inspect_directory(tmp_path / "m/1", verify=True)


def test_a_sound_file_that_is_not_the_listed_one_is_found(tmp_path: Path) -> None:
    build(tmp_path, 1, np.arange(100, dtype=np.uint64))
    build(tmp_path / "other", 1, np.arange(99, dtype=np.uint64))
    path = tmp_path / "m/1/shard-0000-of-0001/t.cube"
    path.write_bytes((tmp_path / "other/m/1/shard-0000-of-0001/t.cube").read_bytes())
    assert inspect_file(path, verify=True).info.rows == 99
    with pytest.raises(Corruption, match=r"shard\.json lists"):
        inspect_directory(tmp_path / "m/1", verify=True)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert inspect_file(path, verify=True, digest=digest).is_verified


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        inspect_file(tmp_path / "no.cube")
    (tmp_path / "1").mkdir()
    with pytest.raises(NotFound, match="not a built version"):
        inspect_directory(tmp_path / "1")
    (tmp_path / "text.cube").write_text("hello" * 2000)
    with pytest.raises(Corruption, match="not a cube file"):
        inspect_file(tmp_path / "text.cube")
