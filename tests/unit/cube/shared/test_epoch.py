"""A damaged lease note still fences off older transfers."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from elasticctr.cube.agent.lease import AgentLease
from elasticctr.cube.shared.epoch import read_epoch
from elasticctr.errors import FailedPrecondition


@pytest.mark.promise(
    "lease.json or epoch.json is damaged",
    "the process starts, keeps the file under another name, and takes an epoch above all earlier ones",
)
@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"epoch": "x"}', b'{"epoch": -1}', b"\xff\xfe"])
def test_a_damaged_note_is_set_aside_and_the_epoch_goes_up(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "epoch.json"
    path.write_bytes(damage)
    before = int(time.time() * 1000)
    found = read_epoch(path)
    assert found["epoch"] >= before
    assert path.with_name("epoch.json.damaged").read_bytes() == damage
    assert read_epoch(path) == found == json.loads(path.read_bytes())


def test_without_a_note_there_is_none(tmp_path: Path) -> None:
    assert read_epoch(tmp_path / "epoch.json") == {}


def test_an_agent_with_a_damaged_lease_still_fences_off_older_transfers(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    AgentLease(path).take("one", 7, 10)
    path.write_bytes(b"\0" * 20)
    lease = AgentLease(path)
    for epoch in (6, 7):
        with pytest.raises(FailedPrecondition):
            lease.take("one", epoch, 10)
    granted = lease.take("one", lease.epoch + 1, 10, "http://10.0.0.1:8099")
    assert granted["owner"] == "one" and lease.address == "http://10.0.0.1:8099"
    assert AgentLease(path).address == "http://10.0.0.1:8099"
