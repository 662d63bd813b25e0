"""All trainers die at once: the pservers keep what they have, and those that are started again go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.training import Log, Training

pytestmark = pytest.mark.timeout(900)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_every_trainer_is_killed(strategy: str, training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=5, strategy=strategy, trainers=3) as training:
        training.start()
        training.random_moment()
        training.kill("trainer-0", "trainer-1", "trainer-2")
        training.finish()
        training.check()
        assert training.rollbacks == 0
