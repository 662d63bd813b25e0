"""A shard's list of files is read back, and refused where it contradicts itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.fakes import make_build

from elasticctr.cube.shared.listing import MAX_LISTING_BYTES, parse_build, parse_shard
from elasticctr.errors import Corruption


@pytest.fixture
def shard(tmp_path: Path) -> dict[str, Any]:
    make_build(tmp_path, version=3, parent=2)
    found: dict[str, Any] = json.loads((tmp_path / "ctr/3/shard-0001-of-0002/shard.json").read_text())
    return found


def test_what_the_builder_writes_is_read(tmp_path: Path, shard: dict[str, Any]) -> None:
    listing = parse_shard(json.dumps(shard).encode(), "x")
    assert (listing.model, listing.version, listing.parent, listing.shard, listing.shards) == ("ctr", 3, 2, 1, 2)
    assert listing.total_bytes == 100_000
    build = parse_build((tmp_path / "ctr/3/build.json").read_bytes(), "x")
    assert [file.name for file in build.shard_files] == [f"shard-000{n}-of-0002/shard.json" for n in (0, 1)]


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"model": "../x"},
        {"version": 0},
        {"kind": "base"},
        {"kind": "patch"},
        {"parent": 3},
        {"parent": 0},
        {"shard": 2},
        {"shard": -1},
        {"shards": 5000},
        {"files": []},
        {"files": None},
        {"sharding": "random"},
    ],
)
def test_what_contradicts_itself_is_corruption(shard: dict[str, Any], change: dict[str, Any]) -> None:
    with pytest.raises(Corruption, match="x: not a usable listing"):
        parse_shard(json.dumps(shard | change).encode(), "x")


@pytest.mark.parametrize(
    "change",
    [{"name": n} for n in ("../x.cube", "x", "a/b.cube", "", "x.cube\n")]
    + [{"bytes": b} for b in (0, -1, 1 << 60, "many")]
    + [{"sha256": s} for s in ("", "0" * 63, "G" * 64, "A" * 64)]
    + [{"rows": -1}, {"table": "a/b"}],
)
def test_a_listed_file_must_be_one(shard: dict[str, Any], change: dict[str, Any]) -> None:
    shard["files"][0] |= change
    with pytest.raises(Corruption):
        parse_shard(json.dumps(shard).encode(), "x")


def test_a_file_listed_twice_is_corruption(shard: dict[str, Any]) -> None:
    shard["files"] *= 2
    with pytest.raises(Corruption, match="twice"):
        parse_shard(json.dumps(shard).encode(), "x")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff" * 9, b"[" * 50_000, b" " * (MAX_LISTING_BYTES + 1)]
)
def test_garbage_is_corruption(data: bytes) -> None:
    for parse in (parse_shard, parse_build):
        with pytest.raises(Corruption):
            parse(data, "x")


def test_a_build_lists_its_shards_in_order(tmp_path: Path) -> None:
    make_build(tmp_path)
    build = json.loads((tmp_path / "ctr/1/build.json").read_text())
    for shards in (build["shard_files"][:1], build["shard_files"][::-1], build["shard_files"] * 2):
        with pytest.raises(Corruption):
            parse_build(json.dumps(build | {"shard_files": shards}).encode(), "x")
