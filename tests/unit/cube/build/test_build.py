"""Rows are built into the right shard, whole and once; killed or damaged builds are not used."""

from __future__ import annotations

import hashlib
import json
import resource
import time
from pathlib import Path

import numpy as np
import pytest
from tests.unit.cube.rows import Rows, build, draw, expect, rows_of

from elasticctr import _native
from elasticctr.cube.build.builder import BuildOptions, Target, build_tables
from elasticctr.cube.directory import find_versions, read_version
from elasticctr.cube.local import LocalCube
from elasticctr.errors import AlreadyExists, ConfigError, DataError, FailedPrecondition, InternalError

EMPTY = np.zeros(0, np.uint64)


@pytest.mark.parametrize("shards", [1, 2, 7])
@pytest.mark.parametrize("sharding", ["buckets", "modulo"])
def test_every_row_is_found_in_its_shard_and_nothing_else(tmp_path: Path, shards: int, sharding: str) -> None:
    rng = np.random.default_rng(shards)
    feasigns = draw(rng, 3000)
    result = build(tmp_path, 1, feasigns, options=BuildOptions(shards, sharding))  # type: ignore[arg-type]
    assert (result.rows, result.tombstones, result.duplicates) == (len(feasigns), 0, 0)
    cube = LocalCube(tmp_path)
    asked = np.concatenate([feasigns, rng.integers(0, 2**64, 1000, dtype=np.uint64)])
    rows, found = expect(dict.fromkeys(feasigns.tolist(), 1), asked)
    answer = cube.get("m/t", asked)
    assert np.array_equal(answer.found, found)
    assert np.array_equal(answer.rows, rows)
    assert answer.version == 1
    assert answer.misses == 1000


def test_listings_name_the_bytes_that_are_there(tmp_path: Path) -> None:
    result = build(tmp_path, 3, draw(np.random.default_rng(0), 500), options=BuildOptions(2))
    listed = json.loads((result.directory / "build.json").read_text())
    assert (listed["model"], listed["version"], listed["kind"], listed["shards"]) == ("m", 3, "base", 2)
    assert listed["rows"] == result.rows
    version = read_version(result.directory)
    total = 0
    for directory, listing in version.shards:
        for file in listing.files:
            data = (directory / file.name).read_bytes()
            assert hashlib.sha256(data).hexdigest() == file.sha256
            assert len(data) == file.size
            total += len(data)
    assert total == result.bytes == listed["bytes"]
    assert sorted(entry.name for entry in (tmp_path / "m").iterdir()) == ["3"]


def test_of_duplicates_the_last_counts(tmp_path: Path) -> None:
    feasigns = np.array([5, 9, 5, 7, 9, 5], dtype=np.uint64)
    values = np.arange(6 * 4, dtype=np.float32).reshape(6, 4)
    result = build_tables({"t": Rows(feasigns, values)}, tmp_path, Target("m", 1))
    assert (result.rows, result.duplicates) == (3, 3)
    answer = LocalCube(tmp_path).get("t", [5, 7, 9])
    assert np.array_equal(answer.rows, values[[5, 3, 4]])


def test_a_feasign_both_gone_and_there_is_there(tmp_path: Path) -> None:
    build(tmp_path, 1, np.array([1, 2], dtype=np.uint64))
    build(tmp_path, 2, np.array([2], np.uint64), parent=1, gone=np.array([1, 2], np.uint64))
    assert LocalCube(tmp_path).get("t", [1, 2]).found.tolist() == [False, True]


@pytest.mark.parametrize("memory_mib", [16, 64])
def test_a_table_larger_than_the_memory_goes_through_the_disk(tmp_path: Path, memory_mib: int) -> None:
    feasigns = np.random.default_rng(1).permutation(np.arange(300_000, dtype=np.uint64) * 77)
    options = BuildOptions(2, memory_bytes=memory_mib << 20)
    result = build(tmp_path, 1, feasigns, options=options, dim=16)
    assert (result.spilled_bytes > 0) == (memory_mib == 16)
    answer = LocalCube(tmp_path).get("t", feasigns[:50_000])
    assert answer.found.all()
    assert np.array_equal(answer.rows, rows_of(1, feasigns[:50_000], 16))
    assert not list((tmp_path / "m" / "1").glob("run-*"))


def test_the_file_does_not_depend_on_memory_threads_or_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    feasigns = draw(rng, 40_000)
    digests = set()
    for number, (memory, threads) in enumerate([(16 << 20, 1), (1 << 30, 2), (1 << 28, 3)]):
        out = tmp_path / str(number)
        build(out, 1, rng.permutation(feasigns), options=BuildOptions(1, memory_bytes=memory, threads=threads))
        digests.add(hashlib.sha256((out / "m/1/shard-0000-of-0001/t.cube").read_bytes()).hexdigest())
    assert len(digests) == 1


def test_an_empty_table(tmp_path: Path) -> None:
    result = build(tmp_path, 1, EMPTY, options=BuildOptions(2))
    assert result.rows == 0
    cube = LocalCube(tmp_path)
    assert not cube.get("t", np.arange(100, dtype=np.uint64)).found.any()
    assert len(cube.get("t", []).found) == 0


def test_rows_are_encoded_anew(tmp_path: Path) -> None:
    feasigns = np.arange(3000, dtype=np.uint64)
    values = rows_of(1, feasigns)
    largest = np.abs(values).max(axis=1, keepdims=True)
    for encoding, tolerance in (("fp16", 2.0**-11), ("int8", 0.5 / 127 * 1.0001)):
        build(tmp_path / encoding, 1, feasigns, options=BuildOptions(encoding=encoding))  # type: ignore[arg-type]
        answer = LocalCube(tmp_path / encoding).get("t", feasigns)
        assert answer.rows.dtype == np.float32
        assert (np.abs(answer.rows - values) <= tolerance * largest).all()


def test_values_an_encoding_cannot_hold_are_refused(tmp_path: Path) -> None:
    source = Rows(np.array([1], np.uint64), np.array([[1e6, 0, 0, 0]], np.float32))
    with pytest.raises(DataError, match="do not fit into fp16"):
        build_tables({"t": source}, tmp_path, Target("m", 1), BuildOptions(encoding="fp16"))
    assert find_versions(tmp_path / "m") == []
    assert not list((tmp_path / "m").iterdir())


def test_a_base_takes_nothing_away(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="base"):
        build(tmp_path, 1, EMPTY, gone=np.array([1], np.uint64))


def test_a_version_is_never_built_over(tmp_path: Path) -> None:
    build(tmp_path, 1, np.array([1], np.uint64))
    with pytest.raises(AlreadyExists, match="never change"):
        build(tmp_path, 1, np.array([2], np.uint64))
    assert LocalCube(tmp_path).get("t", [1]).found.all()


def test_names_and_numbers_that_cannot_be(tmp_path: Path) -> None:
    rows = Rows(EMPTY, np.zeros((0, 4), np.float32))
    with pytest.raises(DataError, match="not a model name"):
        build_tables({"../t": rows}, tmp_path, Target("m", 1))
    with pytest.raises(DataError, match="versions are whole numbers"):
        build_tables({"t": rows}, tmp_path, Target("m", 0))
    with pytest.raises(ConfigError, match="5000 shards"):
        BuildOptions(shards=5000)
    with pytest.raises(ConfigError, match="at least 16 MiB"):
        build_tables({"t": rows}, tmp_path, Target("m", 1), BuildOptions(memory_bytes=1000))


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    feasigns = np.arange(200_000, dtype=np.uint64)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(InternalError, match=r"cannot be written|disk is full"):
            build(tmp_path, 1, feasigns)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list((tmp_path / "m").iterdir())


def test_opening_takes_no_longer_for_more_rows(tmp_path: Path) -> None:
    times = []
    for number, count in enumerate((1000, 1_000_000), start=1):
        build(tmp_path, number, np.arange(count, dtype=np.uint64))
        path = str(tmp_path / "m" / str(number) / "shard-0000-of-0001" / "t.cube")
        _native.CubeIndex.open(path)
        started = time.perf_counter()
        for _ in range(20):
            _native.CubeIndex.open(path)
        times.append(time.perf_counter() - started)
    assert times[1] < 10 * times[0] + 0.01
