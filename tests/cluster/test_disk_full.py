"""A replica's disk is full: the version that does not fit is not half there, what is live goes on being served, and
once there is room the replica catches up."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.story import Story

SMALL, LARGE = "4m", "64m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one version of the story, not for two."""
    place = tmp_path / "data" / "0-0"
    place.mkdir(parents=True)
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", place], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"no small file system here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_disk_full_during_a_rollout(tmp_path: Path, small_disk: Path) -> None:
    patience = {"first_pause_s": 0.2, "longest_pause_s": 1.0}
    with Story(tmp_path, replicas=1, count=160_000, patience=patience) as story:
        story.begin()
        version = story.base()
        story.catch("preparing", version)
        time.sleep(3)
        assert story.cluster.status()["live"] == 1
        assert not (small_disk / "ctr" / str(version)).exists()
        subprocess.run(["mount", "-o", f"remount,size={LARGE}", small_disk], check=True)
        story.wait_live(version)
        story.end(version)
