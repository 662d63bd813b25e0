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
