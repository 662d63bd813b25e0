"""A standby takes over from a lost pserver, unless it is behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.ps.conftest import LINES, make_job
from tests.unit.ps.run_record import events

from elasticctr.train.checkpoint import list_checkpoints


def test_a_standby_takes_over_and_a_new_one_follows(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, cluster={"pservers": 1, "standby": True}))
    w.allow(12)
    w.start()
    primary = w.add_pserver(0)
    standby = w.add_pserver(0, role="standby")
    w.add_trainer("a")
    w.add_trainer("b")
    w.wait_for(lambda: w.status()["step"] > 3 and {"op": "follow", "primary": primary.address} in standby.orders)
    w.wait_for(lambda: [r["state"] for r in w.status()["roles"] if r["name"] == "standby-0"] == ["ready"])
    w.kill(primary, is_noticed=False)
    again = w.add_pserver(0)  # started again by its engine under its name, before anybody noticed
    w.wait_for(lambda: {"op": "follow", "primary": standby.address} in again.orders)
    w.allow()
    assert w.result() is True
    run = tmp_path / "run"
    assert [o for o in standby.orders if o["op"] == "promote"] == [{"op": "promote"}]
    assert events(run, "rollback") == [] and [e["name"] for e in events(run, "promote")] == ["standby-0"]
    assert events(run, "end")[-1]["samples"] == LINES


def test_a_pserver_that_slept_while_its_standby_took_over_is_told_to_join_anew(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, cluster={"pservers": 1, "standby": True, "pserver_wait_s": 1}))
    w.allow(12)
    w.start()
    primary = w.add_pserver(0)
    w.add_pserver(0, role="standby")
    w.add_trainer("a")
    w.add_trainer("b")
    w.wait_for(lambda: [r["state"] for r in w.status()["roles"] if r["name"] == "standby-0"] == ["ready"])
    primary.is_silent = True
    run = tmp_path / "run"
    w.wait_for(lambda: events(run, "promote"))
    primary.is_silent = False
    w._spawn(lambda: w._beat(primary))
    w.wait_for(lambda: primary.order == "rejoin")
    w.allow()
    assert w.result() is True
    assert events(run, "rollback") == [] and events(run, "end")[-1]["samples"] == LINES


def test_a_standby_its_primary_gave_up_does_not_take_over(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, cluster={"pservers": 1, "standby": True}, train={"checkpoint_every": 3}))
    w.allow(16)
    w.start()
    primary = w.add_pserver(0)
    standby = w.add_pserver(0, role="standby")
    w.add_trainer("a")
    w.add_trainer("b")
    run = tmp_path / "run"
    w.wait_for(lambda: [r["state"] for r in w.status()["roles"] if r["name"] == "standby-0"] == ["ready"])
    primary.standby = "dropping"
    w.wait_for(lambda: events(run, "standby_dropped") and list_checkpoints(run / "checkpoints"))
    w.kill(primary)
    w.allow()
    w.add_pserver(0)
    assert w.result() is True
    assert not [o for o in standby.orders if o["op"] == "promote"]
    assert len(events(run, "rollback")) == 1 and events(run, "end")[-1]["samples"] == LINES


def test_a_standby_that_cannot_take_over_serves_from_the_checkpoint(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, cluster={"pservers": 1, "standby": True}, train={"checkpoint_every": 3}))
    w.allow(16)
    w.start()
    primary = w.add_pserver(0)
    standby = w.add_pserver(0, role="standby")
    w.add_trainer("a")
    w.add_trainer("b")
    run = tmp_path / "run"
    w.wait_for(lambda: [r["state"] for r in w.status()["roles"] if r["name"] == "standby-0"] == ["ready"])
    w.wait_for(lambda: list_checkpoints(run / "checkpoints"))
    standby.fail_promote = "this standby has not caught up with its primary"
    w.kill(primary, is_noticed=False)
    again = w.add_pserver(0)  # finds a standby that seems to have everything, and becomes the next one
    w.wait_for(lambda: events(run, "appoint"))
    w.allow()
    assert w.result() is True
    (back,) = events(run, "rollback")
    (appointed,) = [fake for fake in (standby, again) if any(o["op"] == "load" for o in fake.orders)]
    assert {"op": "load", "directory": str(run / back["path"]), "era": 2} in appointed.orders
    assert not events(run, "promote") and events(run, "end")[-1]["samples"] == LINES


def test_standbys_that_come_back_to_a_shard_without_a_primary_serve_it(tmp_path: Path, world: Any) -> None:
    """The pserver that was killed came back as a standby; before it had caught up, the one it followed was killed."""
    cluster = {"pservers": 1, "standby": True, "pserver_wait_s": 30}
    w = world(make_job(tmp_path, cluster=cluster, train={"checkpoint_every": 3}))
    w.allow(16)
    w.start()
    first, second = w.add_pserver(0), w.add_pserver(0, role="standby")
    w.add_trainer("a")
    w.add_trainer("b")
    run = tmp_path / "run"
    w.wait_for(lambda: [r["state"] for r in w.status()["roles"] if r["name"] == "standby-0"] == ["ready"])
    w.wait_for(lambda: list_checkpoints(run / "checkpoints"))
    w.kill(first, is_noticed=False)
    again = w.add_pserver(0)
    again.is_caught_up = False
    w.wait_for(lambda: {"op": "follow", "primary": second.address} in again.orders)
    w.kill(second)
    w.wait_for(lambda: w.status()["phase"] == "waiting for pservers")
    w.add_pserver(0, role="standby")
    w.allow()
    assert w.result() is True
    assert len(events(run, "rollback")) == 1 and events(run, "end")[-1]["samples"] == LINES
