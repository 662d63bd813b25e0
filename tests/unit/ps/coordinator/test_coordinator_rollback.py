"""When a run goes back to a checkpoint, to which one, and what everybody is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.ps.conftest import LINES, make_job
from tests.unit.ps.run_record import events

from elasticctr.ps.coordinator.stalls import GroupWatch
from elasticctr.train.checkpoint import list_checkpoints, open_checkpoint


@pytest.mark.slow
def test_members_that_wait_for_each_other_go_back_to_the_checkpoint(
    tmp_path: Path, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = GroupWatch.look
    monkeypatch.setattr(GroupWatch, "look", lambda self, now, said, era: look(self, 100 * now, said, era))
    w = world(make_job(tmp_path, train={"checkpoint_every": 5}, cluster={"strategy": "sync"}))
    w.allow(16)
    w.start()
    servers = [w.add_pserver(shard) for shard in range(2)]
    w.add_trainer("a")
    w.add_trainer("b")
    run = tmp_path / "run"
    w.wait_for(lambda: list_checkpoints(run / "checkpoints") and w.status()["step"] > 7)
    era = next(order["era"] for order in servers[0].orders if order["op"] == "load")
    for fake, missing in zip(servers, ([101], [102]), strict=True):
        fake.said = {"missing": missing, "rounds": 7, "era": era, "waiting": 1, "group": 2}
    w.wait_for(lambda: events(run, "rollback"))
    w.allow()
    assert w.result() is True
    assert "pserver 0 waits for [101]; pserver 1 waits for [102]" in events(run, "stalled")[0]["text"]
    saved = run / events(run, "rollback")[0]["path"]
    for fake in servers:
        assert fake.orders.count({"op": "load", "directory": str(saved), "era": era + 1}) == 1
    assert events(run, "end")[-1]["samples"] == LINES


@pytest.mark.slow
def test_a_pserver_lost_without_standby_takes_the_run_back_to_the_checkpoint(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, train={"checkpoint_every": 5}))
    w.allow(16)
    w.start()
    first, second = w.add_pserver(0), w.add_pserver(1)
    w.add_trainer("a")
    w.add_trainer("b")
    run = tmp_path / "run"
    w.wait_for(lambda: list_checkpoints(run / "checkpoints") and w.status()["step"] > 7)
    w.kill(second)
    w.wait_for(lambda: w.status()["phase"] == "waiting for pservers")
    w.allow()
    saved = open_checkpoint(run)
    again = w.add_pserver(1)
    assert w.result() is True
    back = events(run, "rollback")
    assert [e["path"] for e in back] == [f"checkpoints/{saved.path.name}"]
    loads = [order for order in again.orders if order["op"] == "load"]
    assert loads == [{"op": "load", "directory": str(saved.path), "era": 2}] and loads[0] in first.orders
    assert events(run, "end")[-1]["samples"] == LINES


def test_a_rollback_begins_an_era_that_pservers_and_trainers_are_told(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, cluster={"trainers": 1, "lease_s": 600}))
    w.start()
    first, second = w.add_pserver(0), w.add_pserver(1)
    slow, client = w.join("trainer", "slow")["id"], w.client()
    w.wait_for(lambda: client.lease(slow, [])["kind"] == "train")
    before = client.era
    w.kill(second)
    again = w.add_pserver(1)

    def eras(fake: Any) -> list[int]:
        return [order["era"] for order in fake.orders if order["op"] == "load"]

    # Nobody waits for this trainer: what it still pushes is of an era that is over.
    w.wait_for(lambda: eras(again) == [before + 1] and eras(first) == [before, before + 1])
    assert client.beat(slow, {})["order"] == "reload" and client.era == before + 1
    client.leave(slow, "done")
    w.add_trainer("b")
    assert w.result() is True
    assert events(tmp_path / "run", "end")[-1]["samples"] == LINES


def test_a_damaged_newest_checkpoint_is_said_and_the_one_before_taken(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, train={"checkpoint_every": 4, "keep_checkpoints": 50}))
    w.allow(0)
    w.start()
    first, second = w.add_pserver(0), w.add_pserver(1)
    w.add_trainer("a")
    w.add_trainer("b")
    run = tmp_path / "run"
    for count in (1, 2, 3):
        w.allow(10 * count)
        w.wait_for(lambda count=count: len(list_checkpoints(run / "checkpoints")) >= count)
    w.kill(second)
    w.wait_for(lambda: w.status()["phase"] == "waiting for pservers")
    w.allow()
    *_, third, other, newest = [None, *list_checkpoints(run / "checkpoints")]
    (newest / "metrics.bin").write_bytes(b"x")  # found by its checksum
    first.damaged.add(other.name)  # found by the pserver that loads it
    w.add_pserver(1)
    assert w.result() is True
    assert [e["path"] for e in events(run, "rollback")][-1] == f"checkpoints/{third.name}"
    told = " ".join(e["text"] for e in events(run, "warning"))
    assert f"{newest.name} cannot be used" in told and f"{other.name} cannot be loaded" in told
    assert events(run, "end")[-1]["samples"] == LINES


@pytest.mark.slow
def test_without_any_good_checkpoint_the_run_starts_over(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, train={"checkpoint_every": 4}))
    w.allow(10)
    w.start()
    first, second = w.add_pserver(0), w.add_pserver(1)
    w.add_trainer("a")
    w.add_trainer("b")
    run = tmp_path / "run"
    w.wait_for(lambda: list_checkpoints(run / "checkpoints"))
    w.kill(second)
    w.wait_for(lambda: w.status()["phase"] == "waiting for pservers")
    for path in list_checkpoints(run / "checkpoints"):
        (path / "metrics.bin").write_bytes(b"x")
    w.allow()
    w.add_pserver(1)
    assert w.result() is True
    (back,) = events(run, "rollback")
    assert back["path"] is None and back["step"] == 0
    assert [o["directory"] for o in first.orders if o["op"] == "load"] == [None, None]
    assert "cannot be used" in " ".join(e["text"] for e in events(run, "warning"))
    assert events(run, "end")[-1]["samples"] == LINES


def test_a_pserver_that_was_only_slow_goes_on_without_going_back(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, cluster={"pserver_wait_s": 1}))
    w.allow(12)
    w.start()
    w.add_pserver(0)
    slow = w.add_pserver(1)
    w.add_trainer("a")
    w.add_trainer("b")
    w.wait_for(lambda: w.status()["step"] > 3)
    slow.is_silent = True
    w.wait_for(lambda: w.status()["phase"] == "waiting for pservers")
    w.allow()
    slow.is_silent = False
    w._spawn(lambda: w._beat(slow))
    assert w.result() is True
    assert events(tmp_path / "run", "rollback") == []
    assert [o["op"] for o in slow.orders].count("load") == 1
    assert events(tmp_path / "run", "end")[-1]["samples"] == LINES
