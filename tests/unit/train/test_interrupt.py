"""The first signal is noted, the second ends the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from elasticctr.train.interrupt import Interrupt


@pytest.fixture
def ignored() -> Iterator[None]:
    """As a shell starts its background jobs."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_second_signal_ends_a_background_job(ignored: None) -> None:
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.is_set
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_without_a_signal_everything_is_as_before(ignored: None) -> None:
    with Interrupt() as interrupt:
        pass
    assert not interrupt.is_set and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
