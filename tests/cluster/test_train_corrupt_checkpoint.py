"""The newest checkpoint is damaged when a pserver dies: the run uses the previous one, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticctr.train.checkpoint import list_checkpoints
from tests.cluster.harness import wait_until
from tests.cluster.training import Log, Training

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("file", ["*.0.table", "ledger.json"])
def test_the_newest_checkpoint_is_damaged(file: str, training_log: Log, tmp_path: Path) -> None:
    """The pserver that loads a damaged table notices it; anything else is noticed by its checksum in the manifest."""
    with Training(
        tmp_path, training_log, seed=27, checkpoint_s=600, train__checkpoint_every=120, train__keep_checkpoints=9
    ) as training:
        training.start()
        checkpoints = training.run_dir / "checkpoints"
        wait_until(lambda: list_checkpoints(checkpoints)[1:], "two checkpoints", 120)
        sleeping = [training.pause(name) for name in ("trainer-0", "trainer-1")]  # no newer one is due
        wait_until(lambda: not list(checkpoints.glob(".writing-*")), "no checkpoint under way", 30)
        *_, before, newest = list_checkpoints(checkpoints)
        (path,) = newest.glob(file)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x40
        path.write_bytes(data)
        training.kill("pserver-1")
        for pid in sleeping:
            training.go_on(pid)
        training.finish()
        training.check()
        assert Path(training.journal("rollback")[-1]["path"]).name == before.name
        told = " ".join(event["text"] for event in training.events("warning"))
        assert f"{newest.name} cannot be" in told and "trying the one before" in told
