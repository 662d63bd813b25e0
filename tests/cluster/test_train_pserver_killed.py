"""A pserver dies: with a standby nothing is lost, without one all roll back to the last checkpoint automatically."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticctr.train.checkpoint import open_checkpoint
from elasticctr.train.learner import Learner
from tests.cluster.harness import wait_until
from tests.cluster.training import START_S, Log, Training

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


@pytest.mark.slow
def test_one_pserver_is_killed_before_the_first_checkpoint(training_log: Log, tmp_path: Path) -> None:
    """Both start again: the surviving one also gets its initial dense parameters again."""
    with Training(tmp_path, training_log, seed=19, checkpoint_s=600) as training:
        training.start()
        training.random_moment(0.05, 0.2)
        training.kill("pserver-1")
        training.finish()
        training.check()
        assert training.rollbacks == 1
        learner = Learner(training.job)
        first = learner.flat_dense().numpy().copy()
        learner.load(open_checkpoint(training.run_dir))
        moved = learner.flat_dense().numpy() != first
        half = len(moved) // 2
        assert moved[:half].mean() > 0.5 and moved[half:].mean() > 0.5, "a pserver's part was never stepped"


@pytest.mark.slow
def test_pserver_and_standby_of_a_shard_are_killed_at_once(training_log: Log, tmp_path: Path) -> None:
    """The shard's state is lost: all roll back to the last checkpoint, and the first to start serves the shard."""
    with Training(tmp_path, training_log, seed=16, standby=True, epochs=4, checkpoint_s=0.5) as training:
        training.start()
        training.random_moment(0.3, 0.5)
        training.kill("pserver-1", "standby-1")
        training.finish()
        training.check()
        assert training.rollbacks == 1


@pytest.mark.slow
def test_a_pserver_hangs_for_good_whose_standby_was_given_up(training_log: Log, tmp_path: Path) -> None:
    """The standby, which missed something, loads the last checkpoint and serves; the other follows it later."""
    with Training(tmp_path, training_log, seed=17, standby=True, epochs=8, checkpoint_s=0.5) as training:
        training.start()
        training.random_moment(0.1, 0.2)
        wait_until(lambda: of_pserver(training, "pserver-0").get("standby") == "in_sync", "a standby", START_S)
        sleeping = training.pause("standby-0")
        wait_until(lambda: of_pserver(training, "pserver-0").get("standby") == "none", "a standby given up", START_S)
        hung = training.pause("pserver-0")
        training.go_on(sleeping)
        wait_until(lambda: training.journal("appoint"), "a standby that serves", START_S)
        training.go_on(hung)
        wait_until(lambda: training.restarts("pserver-0"), "the other, started again as a standby", START_S)
        training.finish()
        training.check()
        assert training.rollbacks == 1 and not training.journal("promote")
        names = {line["member"]["id"]: line["member"]["name"] for line in training.journal("join")}
        assert [names[line["id"]] for line in training.journal("appoint")] == ["standby-0"]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_a_trainer_sleeps_through_a_rollback(strategy: str, training_log: Log, tmp_path: Path) -> None:
    """It is given up, a pserver is lost and all roll back to the checkpoint. Its next push would fit the
    cursors again, but belongs to a past era."""
    with Training(
        tmp_path, training_log, seed=18, strategy=strategy, epochs=6, lease_s=1.5, checkpoint_s=0.5
    ) as training:
        training.start()
        training.random_moment(0.2, 0.4)
        asleep = training.pause("trainer-0")
        wait_until(lambda: training.is_gone("trainer-0"), "a trainer given up", START_S)
        training.kill("pserver-1")
        wait_until(lambda: training.rollbacks and training.status()["phase"] == "training", "a rollback", START_S)
        training.go_on(asleep)
        wait_until(
            lambda: any(event["name"] == "trainer-0" for event in training.events("back")), "its return", START_S
        )
        training.finish()
        training.check()
        assert training.rollbacks == 1 and training.restarts("trainer-0") == 0


def of_pserver(training: Training, name: str) -> dict[str, Any]:
    """What it said of itself last."""
    return next((role["stats"] for role in training.status()["roles"] if role["name"] == name), {})
