"""A cube in this process answers like a dict through deltas, rollbacks and retirements."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cube.rows import build, draw, expect, rows_of

from elasticctr.cube.build.builder import BuildOptions
from elasticctr.cube.live import read_live, write_live
from elasticctr.cube.local import LocalCube
from elasticctr.errors import ConfigError, Corruption, DataError, FailedPrecondition, NotFound

KEYS = np.arange(100, dtype=np.uint64)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), shards=st.sampled_from([1, 3]))
def test_a_chain_answers_like_a_dict(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, shards: int
) -> None:
    out = tmp_path_factory.mktemp("chain")
    universe = np.concatenate([np.arange(40, dtype=np.uint64), np.array([2**63, 2**64 - 1], np.uint64)])
    picks = st.lists(st.integers(0, len(universe) - 1), unique=True)
    models: dict[int, dict[int, int]] = {}
    model: dict[int, int] = {}
    for version in range(1, data.draw(st.integers(1, 7)) + 1):
        written = universe[np.array(data.draw(picks), dtype=np.int64)]
        gone = universe[np.array(data.draw(picks), dtype=np.int64)] if version > 1 else universe[:0]
        build(out, version, written, parent=version - 1, gone=gone, options=BuildOptions(shards))
        model = {feasign: wrote for feasign, wrote in model.items() if feasign not in set(gone.tolist())}
        model |= dict.fromkeys(written.tolist(), version)
        models[version] = dict(model)
    cube = LocalCube(out, residence=data.draw(st.sampled_from(["mapped", "memory"])))
    for version, state in models.items():
        answer = cube.get("m/t", universe, version=version)
        rows, found = expect(state, universe)
        assert np.array_equal(answer.found, found)
        assert np.array_equal(answer.rows, rows)
        assert answer.version == version


def test_many_deltas_of_all_sizes(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    keys = draw(rng, 4000)
    build(tmp_path, 1, keys)
    state = dict.fromkeys(keys.tolist(), 1)
    for version in range(2, 40):
        chosen = rng.choice(keys, int(rng.integers(1, 1500)), replace=False)
        written, gone = chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]
        build(tmp_path, version, written, parent=version - 1, gone=gone)
        for feasign in gone.tolist():
            state.pop(feasign, None)
        state |= dict.fromkeys(written.tolist(), version)
    answer = LocalCube(tmp_path).get("t", keys)
    rows, found = expect(state, keys)
    assert np.array_equal(answer.found, found)
    assert np.array_equal(answer.rows, rows)


def test_versions_are_activated_rolled_back_and_retired(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        build(tmp_path, version, KEYS[: 10 * version], parent=version - 1)
    cube = LocalCube(tmp_path)
    assert (cube.active(), cube.versions(), cube.available()) == (3, [1, 2, 3], [1, 2, 3])
    cube.activate(2)
    answer = cube.get("m/t", KEYS)
    assert (answer.version, int(answer.found.sum())) == (2, 20)
    cube.retire(1)
    cube.retire(3)
    assert cube.versions() == [2]
    assert int(cube.get("m/t", KEYS).found.sum()) == 20
    with pytest.raises(NotFound, match="version 1"):
        cube.get("m/t", KEYS, version=1)
    with pytest.raises(FailedPrecondition, match="active"):
        cube.retire(2)
    with pytest.raises(NotFound, match="not loaded"):
        cube.retire(1)


def test_the_live_version_is_opened(tmp_path: Path) -> None:
    build(tmp_path, 1, KEYS)
    build(tmp_path, 2, KEYS)
    write_live(tmp_path / "m", 2)
    write_live(tmp_path / "m", 1)
    assert read_live(tmp_path / "m") == (1, 2)
    assert LocalCube(tmp_path).active() == 1
    (tmp_path / "m" / "LIVE").write_text("{")
    with pytest.raises(Corruption, match="LIVE"):
        LocalCube(tmp_path)


def test_a_server_directory_answers_for_its_shard_alone(tmp_path: Path) -> None:
    result = build(tmp_path / "builds", 1, KEYS, options=BuildOptions(2, "modulo"))
    (tmp_path / "data" / "m").mkdir(parents=True)
    (result.directory / "shard-0001-of-0002").rename(tmp_path / "data" / "m" / "1")
    cube = LocalCube(tmp_path / "data")
    odd = KEYS[KEYS % 2 == 1]
    assert np.array_equal(cube.get("t", odd).rows, rows_of(1, odd))
    with pytest.raises(FailedPrecondition, match="another shard"):
        cube.get("t", KEYS)


def test_a_gap_in_the_chain_is_named(tmp_path: Path) -> None:
    build(tmp_path, 1, KEYS)
    build(tmp_path, 3, KEYS, parent=2)
    with pytest.raises(FailedPrecondition, match="depends on 2"):
        LocalCube(tmp_path)


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        LocalCube(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="no built version"):
        LocalCube(tmp_path / "empty")
    build(tmp_path, 1, KEYS)
    with pytest.raises(NotFound, match="no model 'x'"):
        LocalCube(tmp_path, model="x")
    cube = LocalCube(tmp_path)
    with pytest.raises(NotFound, match="m/u"):
        cube.get("u", KEYS)
    with pytest.raises(NotFound, match="no model 'x'"):
        cube.get("x/t", KEYS)
    with pytest.raises(NotFound, match="version 9"):
        cube.get("t", KEYS, version=9)
    with pytest.raises(NotFound):
        cube.activate(9)
    with pytest.raises(DataError, match="whole numbers"):
        cube.get("t", [0.5])
    with pytest.raises(ConfigError, match="residence"):
        LocalCube(tmp_path, residence="disk")  # type: ignore[arg-type]


def test_a_swapped_shard_is_refused(tmp_path: Path) -> None:
    result = build(tmp_path, 1, KEYS, options=BuildOptions(2))
    first, second = (result.directory / f"shard-000{i}-of-0002" / "t.cube" for i in (0, 1))
    spare = result.directory / "spare"
    first.rename(spare)
    second.rename(first)
    spare.rename(second)
    with pytest.raises((Corruption, FailedPrecondition)):
        LocalCube(tmp_path).get("t", KEYS)


def test_a_file_of_another_version_or_table_is_refused(tmp_path: Path) -> None:
    build(tmp_path, 1, KEYS)
    build(tmp_path, 2, KEYS)
    build(tmp_path / "other", 1, KEYS, table="u")
    wrong = (tmp_path / "m/2/shard-0000-of-0001/t.cube").read_bytes()
    place = tmp_path / "m/1/shard-0000-of-0001/t.cube"
    good = place.read_bytes()
    place.write_bytes(wrong)
    with pytest.raises(Corruption, match="version 2, not version 1"):
        LocalCube(tmp_path).activate(1)
    place.write_bytes((tmp_path / "other/m/1/shard-0000-of-0001/u.cube").read_bytes())
    with pytest.raises(Corruption, match="table m/u, not m/t"):
        LocalCube(tmp_path).activate(1)
    place.write_bytes(good)
    LocalCube(tmp_path).activate(1)


def test_damage_is_found_in_memory_and_in_deltas(tmp_path: Path) -> None:
    build(tmp_path, 1, draw(np.random.default_rng(0), 1000))
    flip(tmp_path / "m/1/shard-0000-of-0001/t.cube", 5000)
    with pytest.raises(Corruption, match="do not match their checksum"):
        LocalCube(tmp_path, residence="memory")
    with pytest.raises(Corruption, match="do not match their checksum"):
        LocalCube(tmp_path)
    LocalCube(tmp_path, check="header")  # the header alone is read
    build(tmp_path, 2, KEYS, parent=1)
    flip(tmp_path / "m/2/shard-0000-of-0001/t.cube", 5000)
    with pytest.raises(Corruption, match="do not match their checksum"):
        LocalCube(tmp_path)


@pytest.mark.promise("a mapped index file with flipped bits", "Corruption when it is opened, whichever byte it is")
def test_every_flip_is_found_when_opened(tmp_path: Path) -> None:
    build(tmp_path, 1, draw(np.random.default_rng(0), 300))
    path = tmp_path / "m/1/shard-0000-of-0001/t.cube"
    good = path.read_bytes()
    for at in [*range(4096, len(good), len(good) // 60), len(good) - 1]:
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        with pytest.raises(Corruption):
            LocalCube(tmp_path)
    path.write_bytes(good)
    assert LocalCube(tmp_path).active() == 1


@pytest.mark.promise("a mapped index file cut short while it is open", "Corruption, not SIGBUS and no wrong rows")
def test_a_mapped_file_cut_short(tmp_path: Path) -> None:
    keys = draw(np.random.default_rng(2), 200_000)
    build(tmp_path, 1, keys)
    path = tmp_path / "m/1/shard-0000-of-0001/t.cube"
    good = path.read_bytes()
    for kept in (0, 4096, len(good) // 3, len(good) - 5):
        path.write_bytes(good)
        cube = LocalCube(tmp_path)
        right = cube.get("t", keys[:1000]).rows.copy()
        os.truncate(path, kept)
        deadline = time.monotonic() + 60
        with pytest.raises(Corruption, match="cut short"):
            while time.monotonic() < deadline:  # the end of the last page is only seen by the file's size
                np.testing.assert_array_equal(cube.get("t", keys[:1000]).rows, right)
        with pytest.raises(Corruption, match="cut short"):
            cube.get("t", keys[:1])


def test_a_listing_that_was_changed_is_refused(tmp_path: Path) -> None:
    result = build(tmp_path, 1, KEYS)
    listing = result.directory / "shard-0000-of-0001" / "shard.json"
    listing.write_text(listing.read_text().replace('"rows": 100', '"rows": 101'))
    with pytest.raises(Corruption, match=r"differs from build\.json"):
        LocalCube(tmp_path)


def test_answers_are_of_one_version_while_others_come_and_go(tmp_path: Path) -> None:
    keys = draw(np.random.default_rng(1), 500)
    for version in range(1, 9):
        build(tmp_path, version, keys, options=BuildOptions(2))
    cube = LocalCube(tmp_path)
    stop = threading.Event()
    wrong: list[str] = []

    def read() -> None:
        while not stop.is_set():
            answer = cube.get("m/t", keys)
            if not answer.found.all() or not np.array_equal(answer.rows, rows_of(answer.version, keys)):
                wrong.append(f"version {answer.version}")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(60):
        version = turn % 8 + 1
        old = cube.active()
        cube.activate(version)
        if old != version:
            cube.retire(old)
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_memory_is_given_back_over_fifty_swaps(tmp_path: Path) -> None:
    keys = np.arange(200_000, dtype=np.uint64)
    for version in (1, 2):
        build(tmp_path, version, keys, dim=8)
    cube = LocalCube(tmp_path, residence="memory")
    size = 200_000 * (32 + 11)
    settled = 0
    for turn in range(50):
        old = cube.active()
        cube.activate(3 - old)
        cube.retire(old)
        if turn == 10:
            settled = resident_bytes()
    threading.Event().wait(0.1)
    assert resident_bytes() - settled < 2 * size
