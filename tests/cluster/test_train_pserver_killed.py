"""A pserver dies: with a standby nothing is lost, without one all go back to the last checkpoint by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.training import Log, Training

pytestmark = pytest.mark.timeout(900)


def test_a_pserver_without_standby_is_killed(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=6, checkpoint_s=0.5) as training:
        training.start()
        training.random_moment(0.3, 0.6)
        training.kill(training.random.choice(["pserver-0", "pserver-1"]))
        training.finish()
        training.check()
        assert training.rollbacks == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_a_pserver_with_standby_is_killed(strategy: str, training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=7, strategy=strategy, standby=True, epochs=4) as training:
        training.start()
        training.random_moment(0.3, 0.5)
        training.kill("pserver-1")
        training.finish()
        training.check()
        assert training.rollbacks == 0


@pytest.mark.slow
def test_standby_and_pserver_are_killed_one_after_the_other(training_log: Log, tmp_path: Path) -> None:
    """The killed pserver comes back as the standby of the one that took over, which is killed then."""
    with Training(tmp_path, training_log, seed=8, standby=True, epochs=8) as training:
        training.start()
        training.random_moment(0.1, 0.2)
        training.kill("pserver-0")
        training.random_moment(0.6, 0.7)
        training.kill("standby-0")
        training.finish()
        training.check()


@pytest.mark.slow
def test_every_pserver_is_killed_before_the_first_checkpoint(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=9, checkpoint_s=600) as training:
        training.start()
        training.random_moment(0.05, 0.2)
        training.kill("pserver-0", "pserver-1")
        training.finish()
        training.check()
