"""A transfer killed at any write, or replaced by another, leaves no half rollout."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.cube.transfer.conftest import Bed

from elasticctr.cube.transfer.journal import JournalFile
from elasticctr.errors import FailedPrecondition, InternalError


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


class Crash(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize("is_written", [pytest.param(False, marks=pytest.mark.slow), True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(1, 5))
def test_killed_at_a_transition_it_goes_on_after_a_restart(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, write: int, is_written: bool
) -> None:
    """The four writes of a rollout: begun, built, decided, done. Killed before or after each."""
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
