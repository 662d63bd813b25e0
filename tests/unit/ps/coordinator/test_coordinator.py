"""The coordinator's course with fake pservers and trainers: what the journal, the checkpoints and the reports say."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.ps.conftest import LINES, find_url, make_job

from elasticctr.errors import AlreadyExists, DataError, FailedPrecondition
from elasticctr.ps.coordinator.journal import read_journal
from elasticctr.ps.coordinator.stalls import GroupWatch
from elasticctr.ps.identity import build, job_identity
from elasticctr.storage.atomic import explain_write, write_atomic
from elasticctr.train.checkpoint import list_checkpoints, open_checkpoint
from elasticctr.train.events import read_events


def done_chunks(run: Path) -> list[int]:
    """Chunks done since the last rollback, with those a checkpoint had."""
    done: list[int] = []
    for line in read_journal(run / "ledger" / "journal.jsonl")[0]:
        if line["event"] == "done":
            done.append(int(line["chunk"]))
    return done


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    return read_events(run / "events.jsonl", kind)


def test_a_run_from_start_to_end(tmp_path: Path, world: Any) -> None:
    valid = {"data": {"valid": {"path": str(tmp_path / "valid"), "prefetch": 0}}}
    job = make_job(tmp_path, train={"epochs": 2}, **valid)
    w = world(job)
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    w.add_trainer("a")
    w.wait_for(lambda: w.status()["phase"] == "waiting for trainers")
    w.add_trainer("b")
    assert w.result() is True
    run = tmp_path / "run"
    done = done_chunks(run)
    assert len(done) == len(set(done)) and {chunk >> 32 for chunk in done} == {0, 1}
    end = events(run, "end")[-1]
    assert (end["reason"], end["samples"], end["step"] * 100 >= end["samples"]) == ("finished", 2 * LINES, True)
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["valid"]["samples"] == 500 and metrics["train"]["samples"] == LINES
    assert metrics["train"]["auc"] > 0.6 and metrics["valid"]["roc"]
    assert (run / "report.html").exists()
    data = {(e["split"], e["rows"], e["files"], e["bad_lines"]) for e in events(run, "data")}
    assert data == {("train", LINES, 3, 0), ("valid", 500, 1, 0)}
    assert len(events(run, "eval")) == 2 and events(run, "train")
    newest = open_checkpoint(run)
    assert newest.trainer["epoch"] == 2 and newest.trainer["data"] is None and newest.trainer["samples"] == 2 * LINES
    assert newest.trainer["identity"] == {"schema": "s", "model": "lr", "options": {}}
    assert {p.name for p in newest.path.iterdir()} >= {
        "pserver.0.json",
        "pserver.1.json",
        "main.1.table",
        "metrics.bin",
    }
    assert all(fake.forgotten == 2 << 32 for fake in w.servers)
    with pytest.raises(AlreadyExists, match="--resume"):
        world(job).start()


def test_work_of_a_trainer_that_dies_is_done_by_others_once(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, cluster={"lease_s": 1}))
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    w.add_trainer("a", dies_after=3)
    w.add_trainer("b", dies_after=7)
    w.wait_for(lambda: w.status()["chunks"].get("leased", 0) >= 2)
    w.add_trainer("c")
    assert w.result() is True
    assert events(tmp_path / "run", "end")[-1]["samples"] == LINES
    assert {e["name"] for e in events(tmp_path / "run", "gone")} >= {"a", "b"}
    done = done_chunks(tmp_path / "run")
    assert len(done) == len(set(done))


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


def test_stopping_writes_a_checkpoint_and_resuming_goes_on_from_it(tmp_path: Path, world: Any) -> None:
    job = make_job(tmp_path)
    w = world(job)
    w.allow(14)
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    w.add_trainer("a")
    w.add_trainer("b")
    w.wait_for(lambda: w.status()["step"] > 6)
    w.stop()
    assert w.result() is False
    run = tmp_path / "run"
    assert events(run, "end")[-1]["reason"] == "interrupted"
    saved = open_checkpoint(run).trainer
    assert 0 < saved["samples"] < LINES and saved["data"] == {"ledger": "ledger.json"}
    with pytest.raises(AlreadyExists, match="--resume"):
        world(job).start()
    # With another number of pservers.
    more = make_job(tmp_path, cluster={"pservers": 3})
    w = world(more)
    w.start(resume=True)
    for shard in range(3):
        w.add_pserver(shard)
    w.add_trainer("a")
    w.add_trainer("b")
    assert w.result() is True
    end = events(run, "end")[-1]
    assert (end["reason"], end["samples"]) == ("finished", LINES)
    done = done_chunks(run)
    assert len(done) == len(set(done))


def test_steps_end_a_run_and_the_journal_says_why(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, train={"steps": 12, "epochs": 5}))
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    w.add_trainer("a")
    w.add_trainer("b")
    assert w.result() is True
    end = events(tmp_path / "run", "end")[-1]
    assert end["reason"] == "finished" and 12 <= end["step"] < 100  # of 150 in five epochs; a busy machine is told late


def test_the_best_state_is_loaded_for_the_test(tmp_path: Path, world: Any) -> None:
    data = {name: {"path": str(tmp_path / "valid"), "prefetch": 0} for name in ("valid", "test")}
    # The fakes' scores never change: the first epoch is the best, and patience runs out after the second.
    job = make_job(tmp_path, train={"epochs": 9, "early_stopping": {"patience": 1}}, data=data)
    w = world(job)
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    w.add_trainer("a")
    w.add_trainer("b")
    assert w.result() is True
    run = tmp_path / "run"
    assert events(run, "end")[-1]["reason"] == "early stopping"
    assert json.loads((run / "metrics.json").read_text())["test"]["samples"] == 500
    best = json.loads((run / "checkpoints" / "best.json").read_text())["checkpoint"]
    loads = [Path(o["directory"]).name for o in w.servers[0].orders if o["op"] == "load" and o["directory"]]
    assert loads == [best] and open_checkpoint(run / "checkpoints" / best).trainer["epoch"] == 1


def test_too_many_bad_lines_end_the_run(tmp_path: Path, world: Any) -> None:
    job = make_job(tmp_path)
    (tmp_path / "logs" / "part-1").write_text("rubbish\n" * 4000)
    w = world(job)
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    w.add_trainer("a")
    w.add_trainer("b")
    with pytest.raises(DataError, match=r"lines are bad, more than max_bad_fraction.*part-1"):
        w.result()


@pytest.mark.promise(
    "a body of many megabytes to the coordinator",
    "refused by its announced length; only reports with metrics may be long",
)
def test_only_reports_of_metrics_may_be_long(tmp_path: Path, world: Any) -> None:
    job = make_job(tmp_path)
    w = world(job)
    w.start()
    for path, status in {
        "join": 413, "beat": 413, "lease": 413, "give_back": 413, "leave": 413, "report": 413, "stop": 413,
        "progress": 400, "done": 400,
    }.items():  # fmt: skip
        answer = httpx.post(find_url(job.run_dir) + f"/v1/{path}", content=b" " * (2 << 20), timeout=60)
        assert answer.status_code == status, path
    w.stop()
    assert w.result() is False


@pytest.mark.promise(
    "a stranger joins with a wrong identity to learn the right one",
    "the refusal says nothing about the job; the difference is only in the coordinator's log",
)
def test_those_of_another_job_or_build_and_one_pserver_too_many_are_refused(tmp_path: Path, world: Any) -> None:
    job = make_job(tmp_path)
    w = world(job)
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    with pytest.raises(FailedPrecondition, match=r"no place for this pserver: the job has 2 pservers"):
        w.join("pserver", "third", address="127.0.0.1:1")
    with pytest.raises(FailedPrecondition, match=r"is of build 0\.0, the coordinator of"):
        w.client().join("trainer", "old", build="0.0", identity="", host="", pid=1)
    for identity in ("{}", '{"seed":0}', "[]"):
        with pytest.raises(FailedPrecondition, match="another job than the coordinator") as told:
            w.client().join("trainer", "stranger", build=build(), identity=identity, host="", pid=1)
        for part in ("batch_size", "schema", "100", "'lr'", job_identity(job).digest[:8]):
            assert part not in str(told.value)
    other = world(make_job(tmp_path, train={"batch_size": 7}))
    with pytest.raises(FailedPrecondition, match="another job than the coordinator"):
        other.join("trainer", "other")
    with pytest.raises(AlreadyExists, match="a coordinator is at work on this run already"):
        world(job).start()
    w.stop()
    assert w.result() is False


def test_a_pserver_short_of_memory_ends_the_run_with_a_checkpoint(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path))
    w.allow(8)
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    w.add_trainer("a")
    w.add_trainer("b")
    w.wait_for(lambda: w.status()["step"] > 3)
    member = next(role["id"] for role in w.status()["roles"] if role["name"] == "pserver-0")
    w.client().report(member, "memory", "shard 0 has 7 rows, and 0.95 of 1.00 GiB are in use (ulimit -v)")
    w.allow()
    with pytest.raises(FailedPrecondition, match=r"0\.95 of 1\.00 GiB .*--pservers.*sparse\.admission"):
        w.result()
    assert list_checkpoints(tmp_path / "run" / "checkpoints")
