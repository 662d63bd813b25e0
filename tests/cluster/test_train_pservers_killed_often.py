"""Pservers die again and again under sync: each time all go back to a checkpoint in which chunks may stand at different
batches on different pservers, and each time the group goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.harness import wait_until
from tests.cluster.training import START_S, Log, Training

_ROLLBACKS = 6


@pytest.mark.slow
@pytest.mark.promise(
    "pservers are killed six times in a row while three trainers step together",
    "the run finishes, and every sample is learned from exactly once",
)
@pytest.mark.parametrize("strategy", ["sync"])
def test_the_group_goes_on_after_every_rollback(strategy: str, training_log: Log, tmp_path: Path) -> None:
    settings = {"strategy": strategy, "trainers": 3, "checkpoint_s": 0.2, "train__batch_size": 16, "chunk_mib": 0.03}
    with Training(tmp_path, training_log, seed=31, epochs=2, max_restarts=100, **settings) as training:
        training.start()
        training.wait_samples(0.02)
        for rollback in range(1, _ROLLBACKS + 1):
            training.kill(f"pserver-{training.random.randrange(2)}")
            wait_until(
                lambda n=rollback: training.rollbacks >= n and training.status()["phase"] == "training",
                f"rollback {rollback}",
                START_S,
            )
            time.sleep(training.random.uniform(0.2, 1.0))
        training.finish()
        training.check_ledger()
        training.check_every_sample_once()
        training.check_nothing_left()
        assert training.rollbacks >= _ROLLBACKS and not training.events("stalled")
