"""A compacted chain answers what the chain answered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.cube.rows import build, draw

from elasticctr.cube.build.builder import BuildOptions
from elasticctr.cube.build.compact import compact
from elasticctr.cube.directory import read_version
from elasticctr.cube.local import LocalCube
from elasticctr.errors import AlreadyExists, FailedPrecondition, NotFound


def test_a_compacted_chain_answers_what_the_chain_answered(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    keys = draw(rng, 2000)
    builds = tmp_path / "builds"
    for version in range(1, 6):
        written, gone = rng.permutation(keys)[:700], rng.permutation(keys)[:200]
        taken = gone if version > 1 else None
        build(builds, version, written, parent=version - 1, gone=taken, options=BuildOptions(2))
    result = compact(builds, None, 5, tmp_path / "compacted")
    chain, base = LocalCube(builds).get("m/t", keys), LocalCube(tmp_path / "compacted").get("m/t", keys)
    assert base.version == 5
    assert np.array_equal(base.found, chain.found)
    assert np.array_equal(base.rows, chain.rows)
    assert result.rows == int(chain.found.sum())
    assert result.target.kind == "base"
    compacted = read_version(tmp_path / "compacted/m/5")
    assert (compacted.parent, len(compacted.shards)) == (0, 2)


def test_a_base_of_another_number(tmp_path: Path) -> None:
    build(tmp_path, 1, np.arange(10, dtype=np.uint64))
    build(tmp_path, 2, np.arange(5, dtype=np.uint64), parent=1)
    with pytest.raises(AlreadyExists):
        compact(tmp_path, "m", 2, tmp_path)
    assert compact(tmp_path, "m", 2, tmp_path, 3).target.version == 3
    assert LocalCube(tmp_path).get("t", [0, 9]).rows[:, 0].tolist() == [2000.0, 1009.0]


def test_what_cannot_be_compacted_is_named(tmp_path: Path) -> None:
    build(tmp_path, 1, np.arange(10, dtype=np.uint64))
    build(tmp_path, 2, np.arange(5, dtype=np.uint64), parent=1, options=BuildOptions(2))
    build(tmp_path, 5, np.arange(5, dtype=np.uint64), parent=4)
    with pytest.raises(FailedPrecondition, match="other shards"):
        compact(tmp_path, "m", 2, tmp_path / "out")
    with pytest.raises(FailedPrecondition, match="depends on 4"):
        compact(tmp_path, "m", 5, tmp_path / "out")
    with pytest.raises(NotFound):
        compact(tmp_path, "m", 9, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.cube"))
