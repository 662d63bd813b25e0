"""Published versions become cube versions; a manifest or part that does not match builds nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from tests.unit.cube.rows import DIM, draw, expect, rows_of

from elasticctr.cube.build.builder import BuildOptions
from elasticctr.cube.build.builds import build_version, find_version
from elasticctr.cube.local import LocalCube
from elasticctr.errors import ConfigError, Corruption, NotFound


def publish(
    repository: Path, version: int, feasigns: NDArray[np.uint64], gone: NDArray[np.uint64], parent: int = 0
) -> None:
    """A version of two part files, written by hand in the format of docs/formats/version.md."""
    directory = repository / "ctr" / str(version)
    (directory / "sparse/main").mkdir(parents=True)
    rows = pa.schema([("feasign", pa.uint64()), ("row", pa.binary(4 * DIM))])
    files = {}
    for number, part in enumerate(np.array_split(feasigns, 2)):
        column = pa.array([row.tobytes() for row in rows_of(version, part)], pa.binary(4 * DIM))
        files[f"sparse/main/part-{number:05d}.arrow"] = pa.record_batch([pa.array(part), column], schema=rows)
    if len(gone):
        files["sparse/main/gone-00000.arrow"] = pa.record_batch([pa.array(gone)], names=["feasign"])
    listed = []
    for name, batch in files.items():
        with pa.OSFile(str(directory / name), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        data = (directory / name).read_bytes()
        listed.append({"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    table = {"encoding": "fp32", "dim": DIM, "row_bytes": 4 * DIM, "segments": [{"name": "embedding", "dim": DIM}]}
    manifest = {
        "format": 1,
        "model": "ctr",
        "version": version,
        "kind": "delta" if parent else "base",
        "parent": parent,
        "base": 1 if parent else version,
        "chain": list(range(1, version)) if parent else [],
        "created": 0.0,
        "elasticctr": "test",
        "tables": {"main": {**table, "rows": len(feasigns), "gone": len(gone), "missing": "zeros"}},
        "files": listed,
    }
    data = json.dumps(manifest).encode()
    (directory / "manifest.json").write_bytes(data)
    event = {"event": "publish", "version": version, "kind": manifest["kind"], "parent": parent}
    event |= {"base": manifest["base"], "manifest_sha256": hashlib.sha256(data).hexdigest(), "time": 0.0}
    with (repository / "ctr/donefile").open("a") as donefile:
        donefile.write(json.dumps(event) + "\n")


NOTHING = np.zeros(0, np.uint64)


def test_a_chain_built_delta_by_delta_or_whole_answers_the_same(tmp_path: Path) -> None:
    keys = draw(np.random.default_rng(0), 1000)
    repository = tmp_path / "repo"
    publish(repository, 1, keys[:800], NOTHING)
    publish(repository, 2, keys[700:900], keys[:100], parent=1)
    publish(repository, 3, keys[:50], keys[60:750], parent=2)
    state = dict.fromkeys(keys[:800].tolist(), 1)
    for version, written, gone in ((2, keys[700:900], keys[:100]), (3, keys[:50], keys[60:750])):
        state = {feasign: wrote for feasign, wrote in state.items() if feasign not in set(gone.tolist())}
        state |= dict.fromkeys(written.tolist(), version)
    options = BuildOptions(2)
    for version in (1, 2, 3):
        built = build_version(str(repository), "ctr", version, tmp_path / "builds", options)
        assert built.target.parent == version - 1
    whole = build_version(str(repository), "ctr", 3, tmp_path / "whole", options, whole=True)
    assert (whole.target.kind, whole.rows, whole.tombstones) == ("base", len(state), 0)
    rows, found = expect(state, keys)
    for out in ("builds", "whole"):
        answer = LocalCube(tmp_path / out).get("ctr/main", keys)
        assert answer.version == 3
        assert np.array_equal(answer.found, found)
        assert np.array_equal(answer.rows, rows)


def test_a_part_that_does_not_match_its_manifest_builds_nothing(tmp_path: Path) -> None:
    publish(tmp_path / "repo", 1, np.arange(1000, dtype=np.uint64), NOTHING)
    part = tmp_path / "repo/ctr/1/sparse/main/part-00001.arrow"
    good = part.read_bytes()
    for bad in (good[:-1], good[:2000] + bytes([good[2000] ^ 1]) + good[2001:], b""):
        part.write_bytes(bad)
        with pytest.raises(Corruption, match=r"part-00001\.arrow: does not match its manifest"):
            build_version(str(tmp_path / "repo"), "ctr", 1, tmp_path / "out")
    part.unlink()
    with pytest.raises(NotFound):
        build_version(str(tmp_path / "repo"), "ctr", 1, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.cube"))
    part.write_bytes(good)
    assert build_version(str(tmp_path / "repo"), "ctr", 1, tmp_path / "out").rows == 1000


def test_a_manifest_that_was_not_announced_is_refused(tmp_path: Path) -> None:
    publish(tmp_path / "repo", 1, np.arange(10, dtype=np.uint64), NOTHING)
    manifest = tmp_path / "repo/ctr/1/manifest.json"
    manifest.write_bytes(manifest.read_bytes() + b" ")
    with pytest.raises(Corruption, match="announced"):
        build_version(str(tmp_path / "repo"), "ctr", 1, tmp_path / "out")


def test_locations_of_versions(tmp_path: Path) -> None:
    for version in (1, 2):
        publish(tmp_path / "repo", version, np.arange(10, dtype=np.uint64), NOTHING)
    repository = str(tmp_path / "repo")
    found = find_version(f"{repository}/ctr/1", None, None)
    assert found is not None
    assert found[1:] == ("ctr", 1)
    live = find_version(f"{repository}/ctr", None, None)
    assert live is not None
    assert live[1:] == ("ctr", 2)
    with pytest.raises(ConfigError, match="leave out --model"):
        find_version(f"{repository}/ctr", "x", None)
    found = find_version(repository, None, None)
    assert found is not None
    assert found[1:] == ("ctr", 2)
    assert find_version(str(tmp_path / "elsewhere"), None, None) is None
    with pytest.raises(NotFound, match="no model 'x'"):
        find_version(repository, "x", None)
    with pytest.raises(ConfigError, match="leave out"):
        find_version(f"{repository}/ctr/1", None, 2)
