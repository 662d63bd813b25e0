"""A replica's disk is full: the version that does not fit is not half there, what is live goes on being served, and
once there is room the replica catches up."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import wait_until
from tests.cluster.story import Story

SIZE = "24m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for one replica."""
    place = tmp_path / "data" / "0-0"
    place.mkdir(parents=True)
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", place], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"no small file system here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_disk_full_during_a_rollout(tmp_path: Path, small_disk: Path) -> None:
    patience = {"first_pause_s": 0.2, "longest_pause_s": 1.0}
    with Story(tmp_path, replicas=1, patience=patience) as story:
        story.begin()
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
        version = story.base()
        story.catch("preparing", version)
        time.sleep(2)
        assert story.cluster.status()["live"] == 1
        assert not (small_disk / "ctr" / str(version)).exists()
        # A server that is started while nothing can be written serves what was live.
        (full, other) = story.cluster.instances
        assert full.server is not None
        story.end(1)
        full.server.kill()
        full.start_server()
        wait_until(lambda: full.active() == 1, "version 1 on the full disk")
        story.check_everywhere(1)
        ballast.unlink()
        story.wait_live(version)
        story.check_everywhere(version)
        assert other.active() == version
