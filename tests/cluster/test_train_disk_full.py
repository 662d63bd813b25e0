"""The disk is full when a checkpoint is due: training goes on, it is said, and a later checkpoint is written."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticctr.train.checkpoint import list_checkpoints
from tests.cluster.harness import wait_until
from tests.cluster.training import Log, Training

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_the_disk_is_full_during_checkpoints(training_log: Log, small_disk: Path) -> None:
    with Training(small_disk, training_log, seed=26, checkpoint_s=0.5, epochs=3) as training:
        training.start()
        training.random_moment(0.1, 0.2)
        checkpoints = training.run_dir / "checkpoints"
        wait_until(lambda: list_checkpoints(checkpoints), "a first checkpoint", 60)
        filler = small_disk / "filler"
        free = shutil.disk_usage(small_disk).free
        filler.write_bytes(b"x" * max(free - (192 << 10), 0))  # room for the journal's lines, not for tables
        wait_until(lambda: "failed" in training.status()["checkpoint"], "a checkpoint that fails", 60)
        kept = list_checkpoints(checkpoints)
        samples = training.status()["samples"]
        assert kept

        def goes_on() -> bool:
            now = int(training.status()["samples"])
            return now > samples or now % training_log.rows == 0  # the next epoch begins when there is room

        wait_until(goes_on, "training that goes on", 60)
        filler.unlink()
        training.finish()
        training.check()
        assert training.rollbacks == 0
        assert not list(checkpoints.glob(".writing-*"))
