"""The coordinator dies, once or again and again: the next one reads the journal and the others notice only a pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.training import Log, Training

pytestmark = pytest.mark.timeout(900)


@pytest.mark.slow
def test_the_coordinator_is_killed(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=21, lease_s=10.0, pserver_wait_s=10.0) as training:
        training.start()
        training.random_moment(0.2, 0.6)
        before = {name: training.pid(name) for name in ("pserver-0", "pserver-1", "trainer-0", "trainer-1")}
        training.kill("coordinator-0")
        training.pid("coordinator-0")
        assert {name: training.pid(name) for name in before} == before
        training.finish()
        training.check()
        assert training.rollbacks == 0
        assert [line["incarnation"] for line in training.journal("begin")] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_the_coordinator_is_killed_again_and_again(strategy: str, training_log: Log, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"strategy": strategy, "lease_s": 20.0, "pserver_wait_s": 20.0, "epochs": 3}
    with Training(tmp_path, training_log, seed=22, **settings) as training:
        training.start()
        for part in (0.1, 0.35, 0.6, 0.8):
            training.wait_samples(part)
            training.kill("coordinator-0")
        training.finish()
        training.check()
        assert training.rollbacks == 0


@pytest.mark.slow
def test_everybody_is_killed_at_once_and_the_job_resumed(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=23, checkpoint_s=0.5) as training:
        training.start()
        training.random_moment(0.4, 0.6)
        assert training.process is not None
        training.process.kill()  # its roles end with it
        training.process.wait(60)
        training.start("--resume")
        training.finish()
        training.check()
