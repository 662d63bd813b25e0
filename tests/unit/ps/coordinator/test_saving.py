"""A full disk delays checkpoints and stops no training."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from tests.unit.ps.conftest import LINES, make_job
from tests.unit.ps.run_record import done_chunks, events

from elasticctr.storage.atomic import explain_write, write_atomic
from elasticctr.train.checkpoint import list_checkpoints, open_checkpoint


def test_a_disk_that_is_full_stops_no_training(tmp_path: Path, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticctr.ps.coordinator.saving._AGAIN_S", 0.2)
    w = world(make_job(tmp_path, train={"checkpoint_every": 5}))
    w.allow(12)
    w.start()
    _, second = w.add_pserver(0), w.add_pserver(1)
    w.add_trainer("a")
    w.add_trainer("b")
    run = tmp_path / "run"
    w.wait_for(lambda: list_checkpoints(run / "checkpoints"))
    kept = list_checkpoints(run / "checkpoints")
    second.fail_save = "main.1.table: the disk is full"
    step = w.status()["step"]
    w.allow(24)
    w.wait_for(lambda: events(run, "checkpoint_failed") and w.status()["step"] > step + 3)
    w.allow()
    assert list_checkpoints(run / "checkpoints") == kept
    assert not list((run / "checkpoints").glob(".writing-*"))
    assert "the disk is full" in w.status()["checkpoint"]["failed"]
    second.fail_save = None
    assert w.result() is True
    assert open_checkpoint(run).trainer["samples"] == LINES


def test_a_disk_that_is_full_when_an_epoch_ends_is_waited_for(
    tmp_path: Path, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticctr.ps.coordinator.saving._SOON_S", 0.05)
    refusals = iter(range(3))

    def refuse_at_first(path: Path, data: bytes) -> None:
        if path.name == "metrics.bin" and is_full and next(refusals, None) is not None:
            raise explain_write(OSError(errno.ENOSPC, "No space left on device"), path)
        write_atomic(path, data)

    is_full = False
    monkeypatch.setattr("elasticctr.ps.coordinator.job_record.write_atomic", refuse_at_first)
    w = world(make_job(tmp_path, train={"epochs": 2}))
    w.allow(12)
    w.start()
    w.add_pserver(0)
    w.add_pserver(1)
    w.add_trainer("a")
    w.add_trainer("b")
    w.wait_for(lambda: w.status()["step"] > 3)
    is_full = True
    w.allow()
    assert w.result() is True
    assert next(refusals, None) is None, "nothing was refused"
    run = tmp_path / "run"
    assert not events(run, "rollback") and events(run, "end")[-1]["samples"] == 2 * LINES
    done = done_chunks(run)
    assert len(done) == len(set(done))
