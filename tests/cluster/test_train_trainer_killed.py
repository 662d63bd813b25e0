"""A trainer dies or hangs at any moment: another continues its chunk, and nothing is rolled back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.harness import wait_until
from tests.cluster.training import START_S, Log, Training

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("strategy", ["async", *(pytest.param(s, marks=pytest.mark.slow) for s in ("sync", "hybrid"))])
def test_a_trainer_is_killed(strategy: str, training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=1, strategy=strategy, trainers=2) as training:
        training.start()
        training.random_moment(0.1, 0.4)
        training.kill(training.random.choice(["trainer-0", "trainer-1"]))
        training.finish()
        training.check()
        assert training.rollbacks == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_trainers_are_killed_again_and_again(seed: int, training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=seed, trainers=3, epochs=4, max_restarts=50) as training:
        training.start()
        for part in (0.05, 0.15, 0.3, 0.45, 0.6):
            training.random_moment(part, part + 0.1)
            training.kill(training.random.choice(["trainer-0", "trainer-1", "trainer-2"]))
        training.finish()
        training.check()
        assert training.rollbacks == 0


@pytest.mark.slow
def test_a_trainer_that_hung_wakes_up_after_its_lease_ran_out(training_log: Log, tmp_path: Path) -> None:
    """Its pushes of a chunk that another trainer has finished meanwhile must not count twice."""
    with Training(tmp_path, training_log, seed=4, trainers=2, epochs=4, lease_s=1.5) as training:
        training.start()
        training.random_moment(0.1, 0.3)
        hung = training.pause("trainer-0")
        wait_until(lambda: training.is_gone("trainer-0"), "a trainer given up", START_S)
        training.go_on(hung)
        training.finish()
        training.check()
        assert training.rollbacks == 0
