"""A version that could not be served is tried again when that can help, ever more rarely, and not otherwise."""

from __future__ import annotations

import pytest

from elasticctr.errors import Corruption, ElasticCTRError, FailedPrecondition, NotFound, Unavailable
from elasticctr.serve.activation.refusals import Refusals


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list so that a test can move it."""
    clock = [1000.0]
    monkeypatch.setattr("elasticctr.serve.activation.refusals.time.time", lambda: clock[0])
    return clock


def test_what_may_pass_is_tried_again_after_longer_and_longer_pauses(now: list[float]) -> None:
    found = Refusals()
    pauses = []
    for _ in range(9):
        refusal = found.add(3, Unavailable("busy"), "line 1")
        assert found.stands(3, "line 1") and refusal.retry_at is not None
        pauses.append(refusal.retry_at - now[0])
        assert found.waits_s() == [pauses[-1]]
        now[0] = refusal.retry_at
        assert not found.stands(3, "line 1")
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert (refusal.attempts, found.total) == (9, 9)


@pytest.mark.parametrize("error", [Corruption("bad"), FailedPrecondition("other schema")])
def test_what_stays_waits_for_an_announcement(now: list[float], error: ElasticCTRError) -> None:
    found = Refusals()
    assert found.add(3, error, "line 1").retry_at is None
    now[0] += 1e9
    assert found.stands(3, "line 1") and found.waits_s() == []
    assert not found.stands(3, "line 2"), "announced anew"
    assert found.add(3, error, "line 2").attempts == 1


def test_other_versions_are_not_refused(now: list[float]) -> None:
    found = Refusals()
    found.add(3, NotFound("no manifest yet"), "line 1")
    assert not found.stands(4, "line 1") and found.versions() == {3}
    found.forgive(3)
    found.forgive(4)
    assert not found.stands(3, "line 1") and found.versions() == set()


def test_the_oldest_are_forgotten(now: list[float]) -> None:
    found = Refusals()
    for version in range(1, 31):
        found.add(version, Corruption("bad"), "line")
    found.add(15, Corruption("bad again"), "line")
    assert found.versions() == set(range(15, 31)) and found.total == 31
    assert [entry["version"] for entry in found.status()][-1] == 15, "tried last"


def test_the_status_says_what_happened_and_not_what_for(now: list[float]) -> None:
    found = Refusals()
    found.add(3, Corruption("part 1 is cut short"), "line 1")
    (entry,) = found.status()
    assert entry == {
        "version": 3,
        "code": "Corruption",
        "reason": "part 1 is cut short",
        "time": 1000.0,
        "attempts": 1,
        "retry_at": None,
    }
