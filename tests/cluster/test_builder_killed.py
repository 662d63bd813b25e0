"""kill -9 of the builder at any moment of a build: nothing that looks like a version is left, and the next build
cleans up and completes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from elasticctr import _native
from elasticctr.cube.build.builder import BuildOptions
from elasticctr.cube.build.builds import build_version
from elasticctr.cube.directory import find_versions, read_version
from elasticctr.cube.lookup import Lookup
from elasticctr.storage.atomic import remove_tree
from elasticctr.versions.repository import Repository
from tests.cluster.truth import DIM, MODEL, TABLE, Truth, publish

COUNT = 400_000
SHARDS = 2


def start(repository: Repository, out: Path, version: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "elasticctr", "cube", "build", f"{repository.url}/{MODEL}/{version}"]
    command += ["--out", str(out), "--shards", str(SHARDS), "--memory", "16MiB"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def check(out: Path, truth: Truth, version: int, chain: list[int]) -> None:
    """Every row of a built version, through the engine servers use."""
    places = np.arange(len(truth.feasigns))
    rows, found = np.zeros((len(places), DIM), np.float32), np.zeros(len(places), bool)
    owners = np.array([_native.shard_of(int(feasign), SHARDS) for feasign in truth.feasigns])
    for shard in range(SHARDS):
        store = _native.CubeStore.make("memory", True)
        for number in [*chain, version]:
            built = read_version(out / MODEL / str(number))
            store.load(MODEL, number, truth.parents[number], built.files(shard))
        store.activate(MODEL, version)
        mine = owners == shard
        got, is_found, answered = store.lookup(f"{MODEL}/{TABLE}", truth.feasigns[mine])
        assert answered == version
        rows[mine], found[mine] = np.ascontiguousarray(got).view(np.float32), is_found
    assert truth.judge(places, Lookup(rows, found, version)).is_right


def test_builder_killed_at_any_moment(tmp_path: Path) -> None:
    truth, repository, out = Truth(COUNT), Repository(str(tmp_path / "repo")), tmp_path / "out"
    truth.define(1)
    publish(repository, truth, 1)
    kills = 0
    for delay_s in (0.0, 0.05, 0.2, *[0.0] * 7):
        builder = start(repository, out, 1)
        while not list(out.glob(f"{MODEL}/.writing-*")) and builder.poll() is None:
            time.sleep(0.001)
        time.sleep(delay_s)
        builder.kill()
        _, said = builder.communicate()
        if (out / MODEL / "1").exists():  # it was done before the blow
            remove_tree(out / MODEL / "1")
            continue
        kills += 1
        assert builder.returncode == -9, said
        assert find_versions(out / MODEL) == []
        if kills == 3:
            break
    assert kills
    if not (out / MODEL / "1").exists():
        assert start(repository, out, 1).wait(100) == 0
    assert not list(out.glob(f"{MODEL}/.writing-*"))
    check(out, truth, 1, [])


def test_builder_of_a_delta_killed_and_run_again(tmp_path: Path) -> None:
    truth, repository, out = Truth(50_000), Repository(str(tmp_path / "repo")), tmp_path / "out"
    truth.define(1)
    publish(repository, truth, 1)
    truth.define(2, 1, share=0.5)
    publish(repository, truth, 2)
    build_version(repository, MODEL, 1, out, BuildOptions(shards=SHARDS))
    builder = start(repository, out, 2)
    while not list(out.glob(f"{MODEL}/.writing-*")) and builder.poll() is None:
        time.sleep(0.0005)
    builder.kill()
    builder.communicate()
    if not (out / MODEL / "2").exists():
        assert start(repository, out, 2).wait(100) == 0
    check(out, truth, 2, [1])
