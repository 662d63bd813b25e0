"""Reading ahead keeps order, bounds memory, and ends its thread."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Generator

import pytest

from elasticctr.data.ahead import Ahead


def count(to: int, made: list[int], closed: list[bool]) -> Generator[int, None, None]:
    try:
        for i in range(to):
            made.append(i)
            yield i
    finally:
        closed.append(True)


def test_items_in_order_and_the_generator_closed() -> None:
    made: list[int] = []
    closed: list[bool] = []
    assert list(Ahead(count(100, made, closed), 3)) == list(range(100))
    assert closed == [True]


def test_no_more_than_the_depth_is_made_ahead() -> None:
    made: list[int] = []
    ahead = Ahead(count(1000, made, []), 4)
    assert next(ahead) == 0
    time.sleep(0.2)
    # One given out, four queued, one in the thread's hand.
    assert len(made) <= 6
    ahead.close()


def test_an_error_comes_after_the_items_before_it() -> None:
    def fail() -> Generator[int, None, None]:
        yield 1
        raise ValueError("broken")

    ahead = Ahead(fail(), 4)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)
    with pytest.raises(StopIteration):
        next(ahead)


def test_items_are_handed_over_in_groups_by_weight() -> None:
    made: list[int] = []
    ahead = Ahead(count(100, made, []), 1, weigh=lambda item: 10, group=40)
    # Four handed over, four queued, and four in the thread's hand.
    assert next(ahead) == 0
    deadline = time.monotonic() + 20
    while len(made) < 12 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(made) == 12
    assert list(ahead) == list(range(1, 100))


def test_an_error_comes_after_a_group_that_is_not_full() -> None:
    def fail() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise ValueError("broken")

    ahead = Ahead(fail(), 1, group=10)
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="broken"):
        ahead.poll(20)


def test_polling_does_not_wait_for_an_item() -> None:
    release = threading.Event()

    def wait() -> Generator[int, None, None]:
        release.wait(60)
        yield 1

    ahead = Ahead(wait(), 1)
    assert ahead.poll(0.0) is None and ahead.poll(0.01) is None
    release.set()
    assert ahead.poll(60) == 1
    assert ahead.poll(60) is None and ahead.poll(0.0) is None


@pytest.mark.parametrize("way", ["close", "drop"])
def test_leaving_early_ends_the_thread(way: str) -> None:
    closed: list[bool] = []
    ahead = Ahead(count(10**9, [], closed), 2)
    thread = ahead._thread
    next(ahead)
    if way == "close":
        ahead.close()
        ahead.close()
    del ahead
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
    assert closed == [True]


def test_a_thread_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticctr.data.ahead._PATIENCE_S", 0.1)
    release = threading.Event()

    def hang() -> Generator[int, None, None]:
        yield 1
        release.wait(600)

    ahead = Ahead(hang(), 1)
    next(ahead)
    ahead.close()
    assert ahead._thread.is_alive()
    release.set()
    ahead._thread.join(60)
    assert not ahead._thread.is_alive()


def test_a_generator_that_fails_to_close_is_an_error_too() -> None:
    def fail() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            raise OSError("cannot be closed")

    ahead = Ahead(fail(), 4)
    assert next(ahead) == 1
    with pytest.raises(OSError, match="cannot be closed"):
        next(ahead)
