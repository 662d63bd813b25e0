"""A trainer is told to stop, or killed, under every strategy: what it started counts once, and others get the rest."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cluster.training import Log, Training

pytestmark = pytest.mark.timeout(900)
STRATEGIES = ["sync", "async", "half_async", "geo", "hybrid"]
_AUC_NOISE = 0.06  # half_async and geo take fewer steps, sync larger ones; benchmarks/strategies.py has the figures


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_trainer_is_told_to_stop(strategy: str, training_log: Log, tmp_path: Path) -> None:
    """It finishes its batch, returns the rest and leaves, and is not restarted."""
    with Training(tmp_path, training_log, seed=20, strategy=strategy, every=8, merge=2, queue=4) as training:
        training.start()
        training.random_moment(0.1, 0.4)
        os.kill(training.pid("trainer-1"), signal.SIGTERM)
        training.finish()
        training.check_ledger()
        training.check_every_sample_once()
        training.check_auc(_AUC_NOISE)
        training.check_nothing_left()
        assert training.rollbacks <= 0
        assert "; interrupted" in (training.run_dir / "logs" / "trainer-1.log").read_text()
        assert training.restarts("trainer-1") == 0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["half_async", "geo"])
def test_a_trainer_that_merges_is_killed(strategy: str, training_log: Log, tmp_path: Path) -> None:
    """Batches it had computed but not sent yet are computed again by others."""
    with Training(tmp_path, training_log, seed=21, strategy=strategy, every=8, merge=4) as training:
        training.start()
        training.random_moment(0.1, 0.4)
        training.kill("trainer-0")
        training.finish()
        training.check_ledger()
        training.check_every_sample_once()
        training.check_auc(_AUC_NOISE)
        training.check_nothing_left()
