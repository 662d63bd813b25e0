"""Long work stops when it is cancelled or its time is over, in the middle of a pause too."""

from __future__ import annotations

import threading

import pytest

from elasticctr.errors import DeadlineExceeded, Unavailable
from elasticctr.obs.watch import Watch


def test_work_goes_on_until_it_is_cancelled() -> None:
    watch = Watch(600)
    watch.check()
    watch.pause(0)
    watch.cancel()
    with pytest.raises(Unavailable):
        watch.check()


def test_work_past_its_time_is_over() -> None:
    with pytest.raises(DeadlineExceeded, match="0 s"):
        Watch(0).pause(600)


def test_cancelling_ends_a_pause() -> None:
    watch = Watch(600)
    outcomes: list[str] = []

    def work() -> None:
        try:
            watch.pause(600)
        except Unavailable as e:
            outcomes.append(e.code)

    thread = threading.Thread(target=work)
    thread.start()
    watch.cancel()
    thread.join(60)
    assert outcomes == ["Unavailable"]
