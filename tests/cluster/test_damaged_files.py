"""Index files that are truncated, have a flipped bit, or belong elsewhere: never served, not taken for a
missing row, and replaced by good ones automatically."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from elasticctr import _native
from elasticctr.cube.build.builder import BuildOptions
from elasticctr.cube.build.builds import build_version
from elasticctr.versions.repository import Repository
from tests.cluster.single import check_not_loadable, check_version
from tests.cluster.story import Story
from tests.cluster.truth import MODEL, TABLE, Truth, publish
from tests.process.cube.serving import ServerProcess

FILE = f"{TABLE}.cube"


def _truncate(victim: Path, _: Path) -> None:
    victim.write_bytes(victim.read_bytes()[:-1000])


def _cut_to_nothing(victim: Path, _: Path) -> None:
    victim.write_bytes(b"")


def _flip_a_bit_of_a_row(victim: Path, _: Path) -> None:
    data = bytearray(victim.read_bytes())
    data[8192 + 5] ^= 4
    victim.write_bytes(data)


def _flip_a_bit_of_the_end(victim: Path, _: Path) -> None:
    data = bytearray(victim.read_bytes())
    data[-1] ^= 128
    victim.write_bytes(data)


def _swap_shard(victim: Path, builds: Path) -> None:
    shutil.copy(builds / MODEL / "2" / "shard-0001-of-0002" / FILE, victim)


def _wrong_version(victim: Path, builds: Path) -> None:
    shutil.copy(builds / MODEL / "1" / "shard-0000-of-0002" / FILE, victim)


DAMAGES: list[Callable[[Path, Path], None]] = [
    _truncate,
    _cut_to_nothing,
    _flip_a_bit_of_a_row,
    _flip_a_bit_of_the_end,
    _swap_shard,
    _wrong_version,
]


@pytest.mark.parametrize("believed", [False, True], ids=["digest as built", "digest of the damage"])
def test_damaged_file_is_not_served(tmp_path: Path, believed: bool) -> None:
    """Even if shard.json was written for the damaged bytes, the file's contents reveal it."""
    truth, repository, builds = Truth(), Repository(str(tmp_path / "repo")), tmp_path / "builds"
    for version in (1, 2):
        truth.define(version)
        publish(repository, truth, version)
        build_version(repository, MODEL, version, builds, BuildOptions(shards=2))
    data = tmp_path / "data"
    for version in (1, 2):
        shutil.copytree(builds / MODEL / str(version) / "shard-0000-of-0002", data / MODEL / str(version))
    places = np.flatnonzero([_native.shard_of(int(feasign), 2) == 0 for feasign in truth.feasigns])
    with ServerProcess(data) as server:
        server.activate(1)
        for damage in DAMAGES:
            victim = data / MODEL / "2" / FILE
            good, listing = victim.read_bytes(), (victim.parent / "shard.json").read_bytes()
            damage(victim, builds)
            if believed:
                _relist(victim)
            check_not_loadable(server, 2)
            check_version(server, truth, 1, places)
            victim.write_bytes(good)
            (victim.parent / "shard.json").write_bytes(listing)
        server.activate(2)
        check_version(server, truth, 2, places)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_file_damaged_on_a_replicas_disk_is_fetched_again(tmp_path: Path) -> None:
    with Story(tmp_path, replicas=2) as story:
        story.begin()
        version = story.delta()
        story.wait_live(version)
        for number, damage in enumerate((_truncate, _flip_a_bit_of_a_row)):
            instance = story.cluster.instance(number, 0)
            assert instance.server is not None
            instance.server.kill()
            damage(instance.data / MODEL / str(version) / FILE, tmp_path)
            instance.start_server()
            story.wait_live(version)
        story.end(version)


def _relist(victim: Path) -> None:
    path = victim.parent / "shard.json"
    listing = json.loads(path.read_text())
    data = victim.read_bytes()
    listing["files"][0] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(listing))
