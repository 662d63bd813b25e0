from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.unit.cube.transfer.conftest import Bed

from elasticctr.cube.transfer.journal import JournalFile
from elasticctr.errors import FailedPrecondition, InternalError, NotFound


def test_a_published_version_reaches_every_replica(bed: Bed) -> None:
    _, rollout = bed.transfer()
    rollout.turn()
    assert rollout.trouble == "nothing published yet"
    bed.feed.publish(1)
    rollout.turn()
    assert bed.active() == [1, 1, 1, 1]
    assert rollout.journal.live == 1
    assert rollout.journal.history[-1]["outcome"] == "done"
    assert bed.builder.built == [(1, False)]
    rollout.turn()
    assert len(rollout.journal.history) == 1


def test_no_server_changes_before_every_shard_is_ready(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    for server in bed.servers[2:]:
        server.refuse_loads = True
    bed.feed.publish(2)
    rollout.turn()
    assert bed.active() == [1, 1, 1, 1]
    assert rollout.journal.history[-1]["outcome"] == "failed"
    assert "Corruption" in rollout.journal.history[-1]["message"]


def test_a_refused_version_is_not_tried_again_and_the_next_one_goes_out(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.builder.corrupt.add(1)
    bed.feed.publish(1)
    for _ in range(3):
        rollout.turn()
    assert [one["outcome"] for one in rollout.journal.history] == ["failed"]
    assert bed.active() == [0, 0, 0, 0]
    bed.feed.publish(2)
    rollout.turn()
    assert bed.active() == [2, 2, 2, 2]


def test_one_replica_that_refuses_does_not_stop_the_others(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.servers[1].refuse_loads = True
    bed.feed.publish(1)
    rollout.turn()
    assert bed.active() == [1, 0, 1, 1]
    assert rollout.journal.history[-1]["message"] == "behind: 0/1"
    bed.servers[1].refuse_loads = False
    bed.turn_until(rollout, lambda: bed.active() == [1, 1, 1, 1])


def test_policy_all_waits_for_every_replica(bed: Bed) -> None:
    _, rollout = bed.transfer(require={"policy": "all"}, patience={"prepare_s": 0.5, "retries": 0})
    bed.servers[1].is_down = True
    bed.feed.publish(1)
    rollout.turn()
    assert bed.active() == [0, 0, 0, 0]
    assert rollout.journal.history[-1]["outcome"] == "failed"
    assert "0/1" in rollout.journal.history[-1]["message"]


def test_a_replica_down_for_the_whole_rollout_is_brought_up_when_it_returns(bed: Bed) -> None:
    _, rollout = bed.transfer(require={"straggler_s": 0.3})
    bed.feed.publish(1)
    bed.turn_until(rollout, lambda: bed.active() == [1, 1, 1, 1])
    bed.servers[3].is_down = True
    bed.feed.publish(2, parent=1)
    bed.turn_until(rollout, lambda: bed.active() == [2, 2, 2, 1])
    bed.servers[3].is_down = False
    bed.turn_until(rollout, lambda: bed.active() == [2, 2, 2, 2])


@pytest.mark.slow
def test_a_shard_down_for_the_whole_rollout_postpones_it_until_the_shard_returns(bed: Bed) -> None:
    _, rollout = bed.transfer(patience={"prepare_s": 2.0, "longest_pause_s": 0.2})
    bed.feed.publish(1)
    bed.turn_until(rollout, lambda: bed.active() == [1] * 4)
    tries = len(rollout.journal.history)
    for server in bed.servers[2:]:
        server.is_down = True
    time.sleep(0.3)
    bed.feed.publish(2)
    bed.turn_until(rollout, lambda: len(rollout.journal.history) > tries + 1)
    assert {one["outcome"] for one in rollout.journal.history[tries:]} == {"postponed"}
    assert bed.active() == [1, 1, 1, 1]
    for server in bed.servers[2:]:
        server.is_down = False
    bed.turn_until(rollout, lambda: bed.active() == [2, 2, 2, 2])


def test_attempts_at_a_version_are_bounded(bed: Bed) -> None:
    _, rollout = bed.transfer(patience={"prepare_s": 0.2, "longest_pause_s": 0.1, "retries": 2})
    for server in bed.servers:
        server.is_down = True
    bed.feed.publish(1)
    bed.turn_until(rollout, lambda: any(one["outcome"] == "failed" for one in rollout.journal.history))
    assert [one["outcome"] for one in rollout.journal.history] == ["postponed", "postponed", "failed"]
    rollout.turn()
    assert len(rollout.journal.history) == 3


def test_a_delta_sends_only_itself(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    bed.feed.publish(2, parent=1)
    rollout.turn()
    assert bed.builder.built == [(1, False), (2, False)]
    assert bed.active() == [2, 2, 2, 2]
    assert [call for call in bed.servers[0].calls if call[0] == "load"] == [("load", "ctr", 1), ("load", "ctr", 2)]


def test_two_deltas_published_at_once_go_out_as_a_chain(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    bed.feed.publish(2, parent=1)
    bed.feed.publish(3, parent=2)
    rollout.turn()
    assert bed.active() == [3, 3, 3, 3]
    assert len(rollout.journal.history) == 2


def test_servers_that_lack_the_parent_get_a_base_of_the_chain(bed: Bed) -> None:
    _, rollout = bed.transfer()
    for version in range(1, 5):
        bed.feed.parents[version] = version - 1
    bed.feed.publish(5, parent=4)
    rollout.turn()
    assert bed.builder.built == [(5, True)]
    assert bed.active() == [5, 5, 5, 5]
    bed.feed.publish(6, parent=5)
    rollout.turn()
    assert bed.builder.built == [(5, True), (6, False)]
    assert bed.active() == [6, 6, 6, 6]


@pytest.mark.slow
def test_a_replica_that_lost_its_disk_gets_a_base_and_the_others_the_delta(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    bed.feed.publish(2, parent=1)
    rollout.turn()
    directory = bed.agents[0].agent.directory
    for version in (1, 2):
        directory.discard("ctr", version)
    (bed.servers[0].data / "ctr/LIVE").unlink()
    bed.servers[0].restart_empty()
    bed.turn_until(rollout, lambda: bed.active() == [2, 2, 2, 2])
    bed.feed.publish(3, parent=2)
    bed.turn_until(rollout, lambda: bed.active() == [3, 3, 3, 3])


@pytest.mark.slow
def test_long_chains_are_compacted(bed: Bed) -> None:
    _, rollout = bed.transfer(build={"max_chain": 2})
    bed.feed.publish(1)
    rollout.turn()
    for version in (2, 3, 4, 5):
        bed.feed.publish(version, parent=version - 1)
        rollout.turn()
    assert bed.builder.built == [(1, False), (2, False), (3, False), (4, True), (5, False)]
    assert bed.active() == [5] * 4


def test_a_delta_with_a_gap_waits_for_its_parent(bed: Bed) -> None:
    _, rollout = bed.transfer(patience={"longest_pause_s": 0.1})
    bed.feed.publish(1)
    rollout.turn()
    bed.feed.publish(3, parent=2)
    rollout.turn()
    assert rollout.journal.history[-1]["outcome"] == "postponed"
    assert "version 2 was never published" in rollout.journal.history[-1]["message"]
    assert bed.active() == [1] * 4
    bed.feed.parents[2] = 1
    bed.turn_until(rollout, lambda: bed.active() == [3] * 4)


def test_the_same_version_announced_twice_does_nothing(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    bed.feed.publish(1)
    rollout.turn()
    assert len(rollout.journal.history) == 1
    assert rollout.journal.handled == "2:1"


def test_a_rollback_is_instant_while_the_version_is_resident(bed: Bed) -> None:
    _, rollout = bed.transfer()
    for version in (1, 2):
        bed.feed.publish(version)
        rollout.turn()
    loads = sum(call[0] == "load" for server in bed.servers for call in server.calls)
    bed.feed.rollback(1)
    rollout.turn()
    assert bed.active() == [1] * 4
    assert (rollout.journal.live, rollout.journal.previous) == (1, 2)
    assert loads == sum(call[0] == "load" for server in bed.servers for call in server.calls)
    assert bed.builder.built == [(1, False), (2, False)]


def test_a_rollback_to_a_retired_version_prepares_it_again(bed: Bed) -> None:
    _, rollout = bed.transfer(build={"keep": 1})
    for version in (1, 2, 3):
        bed.feed.publish(version)
        rollout.turn()
    bed.turn_until(rollout, lambda: all(sorted(server.models["ctr"]) == [2, 3] for server in bed.servers))
    assert bed.agents[0].agent.directory.versions("ctr") == [2, 3]
    rollout.ask(1, "rollback")
    rollout.turn()
    assert bed.active() == [1] * 4
    assert bed.builder.built.count((1, False)) == 2


def test_a_rollback_over_http_holds_until_something_newer_is_published(bed: Bed) -> None:
    process, rollout = bed.transfer()
    for version in (1, 2):
        bed.feed.publish(version)
        rollout.turn()
    answer = bed.peer(process).post("/v1/rollback", {"model": "ctr"})
    assert answer == {"model": "ctr", "version": 1, "reason": "rollback"}
    for _ in range(3):
        rollout.turn()
    assert bed.active() == [1] * 4
    bed.feed.publish(3)
    rollout.turn()
    assert bed.active() == [3] * 4
    with pytest.raises(NotFound, match="never published"):
        bed.peer(process).post("/v1/rollout", {"model": "ctr", "version": 9})


def test_a_stuck_rollout_gives_way_to_an_order(bed: Bed) -> None:
    _, rollout = bed.transfer(patience={"prepare_s": 30.0})
    for version in (1, 2):
        bed.feed.publish(version)
        rollout.turn()
    for server in bed.servers:
        server.load_s = 60
    bed.feed.publish(3)
    turning = threading.Thread(target=rollout.turn)
    turning.start()
    while rollout.journal.state != "preparing":
        time.sleep(0.02)
    rollout.ask(1, "rollback")
    turning.join(60)
    assert not turning.is_alive()
    assert rollout.journal.history[-1]["outcome"] == "superseded"
    bed.turn_until(rollout, lambda: bed.active() == [1] * 4)


def test_a_disk_that_is_full_at_the_decision_changes_nothing(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    _, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    save = JournalFile.save

    def full(self: JournalFile, journal: Any) -> None:
        if journal.state == "activating":
            raise InternalError("the disk is full")
        save(self, journal)

    bed.feed.publish(2)
    monkeypatch.setattr(JournalFile, "save", full)
    rollout.turn()
    assert bed.active() == [1] * 4
    assert rollout.journal.history[-1]["outcome"] == "postponed"
    monkeypatch.setattr(JournalFile, "save", save)
    bed.turn_until(rollout, lambda: bed.active() == [2] * 4)


def test_paused_means_nothing_new_begins(bed: Bed) -> None:
    process, rollout = bed.transfer()
    bed.peer(process).post("/v1/pause", {})
    bed.feed.publish(1)
    rollout.turn()
    assert bed.active() == [0] * 4
    bed.peer(process).post("/v1/resume", {})
    rollout.turn()
    assert bed.active() == [1] * 4


def test_old_versions_are_retired_and_their_builds_pruned(bed: Bed) -> None:
    process, rollout = bed.transfer(build={"keep": 2})
    bed.feed.publish(1)
    rollout.turn()
    for version in (2, 3, 4):
        bed.feed.publish(version)
        rollout.turn()
    bed.turn_until(rollout, lambda: all(sorted(server.models["ctr"]) == [3, 4] for server in bed.servers))
    assert process.builds.versions("ctr") == [3, 4]
    assert bed.feed.pins[-1] == [3, 4]


class Crash(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize("is_written", [pytest.param(False, marks=pytest.mark.slow), True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(1, 5))
def test_killed_at_a_transition_it_resumes_after_a_restart(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, write: int, is_written: bool
) -> None:
    """The four writes of a rollout: begun, built, decided, done. Killed before and after each."""
    process, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    writes = 0
    save = JournalFile.save

    def crashing(self: JournalFile, journal: Any) -> None:
        nonlocal writes
        writes += 1
        if writes == write and not is_written:
            raise Crash
        save(self, journal)
        if writes == write:
            raise Crash

    bed.feed.publish(2, parent=1)
    monkeypatch.setattr(JournalFile, "save", crashing)
    with pytest.raises(Crash):
        rollout.turn()
    monkeypatch.setattr(JournalFile, "save", save)
    decided = (write, is_written) >= (3, True)
    assert bed.active() == [2] * 4 if write == 4 else bed.active() == [1] * 4
    bed.crash(process)
    _, again = bed.transfer()
    assert again.journal.state == (
        "activating" if decided and (write, is_written) != (4, True) else again.journal.state
    )
    again.turn()
    assert bed.active() == [2] * 4
    assert (again.journal.live, again.journal.previous, again.journal.state) == (2, 1, "idle")
    assert [one["version"] for one in again.journal.history if one["outcome"] == "done"] == [1, 2]


def test_two_transfers_with_one_state_directory(bed: Bed) -> None:
    bed.transfer()
    with pytest.raises(FailedPrecondition, match="another transfer uses this directory"):
        bed.transfer()


@pytest.mark.slow
def test_two_transfers_over_the_same_agents_the_second_stands_by_and_takes_over(bed: Bed) -> None:
    lease = {"lease_s": 6.0}
    first, rollout = bed.transfer(patience=lease)
    bed.feed.publish(1)
    rollout.turn()
    second, waiting = bed.transfer("other", patience=lease)
    assert not second.fleet.is_leading
    bed.feed.publish(2)
    waiting.turn()
    assert bed.active() == [1] * 4
    assert "standing by" in waiting.trouble
    bed.crash(first)
    bed.turn_until(waiting, lambda: bed.active() == [2] * 4)
    assert waiting.journal.live == 2


@pytest.mark.slow
def test_a_transfer_that_slept_is_fenced_off(bed: Bed) -> None:
    lease = {"lease_s": 2.0}
    first, rollout = bed.transfer(patience=lease)
    bed.feed.publish(1)
    rollout.turn()
    first.fleet._stop.set()  # it sleeps: nobody renews its lease
    time.sleep(2.5)
    second, taking = bed.transfer("other", patience={"lease_s": 60})
    bed.turn_until(taking, lambda: second.fleet.is_leading and taking.journal.live == 1)
    order = {"model": "ctr", "version": 1, "lease": {"owner": first.fleet.owner, "epoch": first.fleet.epoch}}
    with pytest.raises(FailedPrecondition, match="take the lease again"):
        first.fleet.instances[0].post("/v1/activate", order)


@pytest.mark.slow
def test_a_decision_overtaken_by_another_transfer_is_not_carried_out_later(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = {"lease_s": 2.0}
    first, rollout = bed.transfer(patience=lease)
    bed.feed.publish(1)
    rollout.turn()
    save = JournalFile.save

    def crash_at_decision(self: JournalFile, journal: Any) -> None:
        save(self, journal)
        if journal.state == "activating":
            raise Crash

    bed.feed.publish(2)
    monkeypatch.setattr(JournalFile, "save", crash_at_decision)
    with pytest.raises(Crash):
        rollout.turn()
    monkeypatch.setattr(JournalFile, "save", save)
    bed.crash(first)
    second, other = bed.transfer("other", patience=lease)
    bed.feed.publish(3)
    bed.turn_until(other, lambda: bed.active() == [3] * 4)
    bed.crash(second)
    for server in bed.servers:
        server.calls.clear()
    _, again = bed.transfer(patience=lease)
    assert again.journal.state == "activating"
    bed.turn_until(again, lambda: again.journal.live == 3 and again.journal.state == "idle")
    assert bed.active() == [3] * 4
    assert not [call for server in bed.servers for call in server.calls if call[:1] == ("activate",) and call[2] != 3]
