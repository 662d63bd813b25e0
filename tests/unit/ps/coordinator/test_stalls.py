"""Groups that do not step: those whose members wait for each other, and those that wait for somebody slow."""

from __future__ import annotations

from typing import Any

import pytest

from elasticctr.ps.coordinator.stalls import GroupWatch


def said(missing: list[int], rounds: int = 7, era: int = 2) -> dict[str, Any]:
    return {"missing": missing, "rounds": rounds, "era": era, "waiting": 2, "group": 3}


@pytest.mark.promise(
    "the members of a group wait for each other on different pservers",
    "this is distinguished from a slow member and reported, and the run rolls back to its checkpoint",
)
def test_members_that_wait_for_each_other_are_told_from_a_slow_one() -> None:
    watch = GroupWatch()
    crosswise = {0: said([1]), 1: said([2])}
    assert watch.look(0.0, crosswise, 2) is None
    stall = watch.look(40.0, crosswise, 2)
    assert stall is not None and stall.seconds == 40.0 and not stall.absent
    assert "40 s: pserver 0 waits for [1]; pserver 1 waits for [2]" in str(stall)
    slow = {0: said([1, 3]), 1: said([3])}
    assert watch.look(41.0, slow, 2) is None
    stall = watch.look(50.0, slow, 2)
    assert stall is not None and (stall.seconds, stall.absent) == (9.0, frozenset({3}))


@pytest.mark.parametrize(
    "change",
    [
        {0: said([1], rounds=8), 1: said([2])},  # stepped
        {0: said([1]), 1: said([])},  # one has all it needs
        {0: said([1]), 1: said([3])},
        {0: said([1], era=1), 1: said([2])},  # told before the rollback
        {0: {}, 1: said([2])},  # has not said anything yet
    ],
)
def test_whatever_changes_begins_the_time_anew(change: dict[int, dict[str, Any]]) -> None:
    watch = GroupWatch()
    crosswise = {0: said([1]), 1: said([2])}
    watch.look(0.0, crosswise, 2)
    assert watch.look(10.0, change, 2) is None
    assert watch.look(11.0, crosswise, 2) is None
    stall = watch.look(12.0, crosswise, 2)
    assert stall is not None and stall.seconds == 1.0
