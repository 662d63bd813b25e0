"""A pserver that hangs again and again slows the run down and harms nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.training import Log, Training

pytestmark = pytest.mark.timeout(900)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_a_pserver_hangs_now_and_then(strategy: str, training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=10, strategy=strategy, pserver_wait_s=20.0) as training:
        training.start()
        training.wait_samples(0.1)
        for _ in range(4):
            hung = training.pause("pserver-1")
            time.sleep(training.random.uniform(0.5, 1.5))
            training.go_on(hung)
            time.sleep(training.random.uniform(0.1, 0.4))
        training.finish()
        training.check()
        assert training.rollbacks == 0


@pytest.mark.slow
def test_a_pserver_that_hangs_too_long_is_given_up(training_log: Log, tmp_path: Path) -> None:
    """When it wakes up it must not answer for a shard that another pserver owns."""
    with Training(tmp_path, training_log, seed=11, pserver_wait_s=2.0, epochs=3) as training:
        training.start()
        training.random_moment(0.2, 0.4)
        hung = training.pause("pserver-0")
        time.sleep(8)
        training.go_on(hung)
        training.finish()
        training.check()
