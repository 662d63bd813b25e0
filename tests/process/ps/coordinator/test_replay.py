"""A coordinator that is killed, stopped or doubled, as a real process: the run goes on from the journal."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.ps.conftest import LINES, make_job
from tests.unit.ps.run_record import done_chunks

from elasticctr.errors import FailedPrecondition
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.journal import LedgerJournal
from elasticctr.ps.coordinator.membership import Member
from elasticctr.ps.coordinator.replay import replay
from elasticctr.train.checkpoint import list_checkpoints
from elasticctr.train.events import read_events


def test_killed_and_started_again_it_goes_on(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, cluster={"lease_s": 10, "pserver_wait_s": 10}, train={"checkpoint_every": 10}))
    w.allow(12)
    first = w.start_process()
    w.add_roles()
    w.wait_for(lambda: w.status()["step"] > 5)
    for allowed in (20, 28):
        before = len(done_chunks(tmp_path / "run"))
        first.kill()
        first.wait()
        first = w.start_process()
        w.allow(allowed)
        w.wait_for(lambda before=before: len(done_chunks(tmp_path / "run")) > before)
    assert w.status()["incarnation"] == 3
    w.allow()
    assert first.wait(60) == 0
    run = tmp_path / "run"
    assert read_events(run / "events.jsonl", "rollback") == []
    assert [o["op"] for o in w.servers[0].orders].count("load") == 1  # pservers noticed nothing
    assert w.servers[0].incarnation == 3
    done = done_chunks(run)
    assert len(done) == len(set(done))
    end = read_events(run / "events.jsonl", "end")
    assert [(e["reason"], e["samples"]) for e in end] == [("finished", LINES)]
    assert list_checkpoints(run / "checkpoints")


@pytest.mark.slow
def test_a_second_one_is_refused_while_the_first_works(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, cluster={"lease_s": 30}))
    w.allow(8)
    first = w.start_process()
    w.add_roles()
    second = w.start_process()
    _, said = second.communicate(timeout=60)
    assert second.returncode == 13
    assert f"a coordinator is at work on this run already (incarnation 1, process {first.pid}" in said.decode()
    w.allow()
    assert first.wait(60) == 0


@pytest.mark.slow
def test_a_stopped_one_is_taken_over_and_ends_when_it_wakes_up(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, cluster={"lease_s": 30, "pserver_wait_s": 30}))
    w.allow(12)
    first = w.start_process()
    w.add_roles()
    w.wait_for(lambda: w.status()["step"] > 2)
    os.kill(first.pid, signal.SIGSTOP)
    second = w.start_process()  # waits until the first is provably silent
    assert w.status()["incarnation"] == 2
    os.kill(first.pid, signal.SIGCONT)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 15 and "has taken this run over" in said.decode()
    w.allow()
    assert second.wait(60) == 0
    run = tmp_path / "run"
    assert read_events(run / "events.jsonl", "end")[-1]["samples"] == LINES
    done = done_chunks(run)
    assert len(done) == len(set(done))


def test_sigterm_writes_a_checkpoint(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path))
    w.allow(12)
    first = w.start_process()
    w.add_roles()
    w.wait_for(lambda: w.status()["step"] > 3)
    first.send_signal(signal.SIGTERM)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 0 and "resume with --resume" in said.decode()
    assert list_checkpoints(tmp_path / "run" / "checkpoints")


@pytest.mark.parametrize(("event", "era", "phase"), [("promote", 3, "ready"), ("appoint", -1, "joined")])
def test_who_serves_a_shard_is_known_again(tmp_path: Path, event: str, era: int, phase: str) -> None:
    """A standby that took over holds the state of its era; one that was appointed is loaded."""
    job = make_job(tmp_path, cluster={"pservers": 1, "standby": True})
    assert job.cluster is not None
    journal, _ = LedgerJournal.take_over(tmp_path / "journal.jsonl")
    at = Coordinator(job, job.cluster, journal, 2)
    members = [Member(1, "pserver", "pserver-0", address="a:1", shard=0)]
    members.append(Member(2, "standby", "standby-0", address="a:2", shard=0))
    lines: list[dict[str, Any]] = [{"event": "join", "member": member.as_dict()} for member in members]
    lines += [{"event": "start", "era": 3, "path": None}, {"event": "loaded", "era": 3, "ids": [1]}]
    lines += [{"event": "gone", "id": 1, "phase": "lost", "reason": ""}, {"event": event, "id": 2, "shard": 0}]
    run: Any = SimpleNamespace(path=tmp_path)
    replay(at, lines, run, plan=None)  # type: ignore[arg-type]
    primary = at.members.primary(0)
    assert primary is not None and (primary.name, primary.era, primary.phase) == ("standby-0", era, phase)
    assert at.members.standby(0) is None and at.era == 3


def test_the_journal_of_another_job_is_refused(tmp_path: Path, world: Any) -> None:
    job = make_job(tmp_path)
    (tmp_path / "run" / "ledger").mkdir(parents=True)
    journal, _ = LedgerJournal.take_over(tmp_path / "run" / "ledger" / "journal.jsonl")
    journal.append("begin", {"incarnation": 1, "identity": "other"})
    journal.close()
    with pytest.raises(FailedPrecondition, match="was begun with another job"):
        world(job).start()
