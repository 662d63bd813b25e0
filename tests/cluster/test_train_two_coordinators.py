"""Two coordinators of one run: the second is refused, and one that slept through its successor's start ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.harness import wait_until
from tests.cluster.training import Log, Training

pytestmark = pytest.mark.timeout(600)


def start_second(training: Training, port: int = 0) -> subprocess.Popen[bytes]:
    run = training.run_dir
    command = [sys.executable, "-m", "elasticctr", "coordinator", "--job", str(run / "job.yaml"), "--port", str(port)]
    return subprocess.Popen([*command, "--token-file", str(run / "cluster" / "token")], stderr=subprocess.PIPE)


@pytest.mark.slow
def test_a_second_coordinator_is_refused(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=24) as training:
        training.start()
        training.wait_samples(0.1)
        second = start_second(training)
        _, said = second.communicate(timeout=60)
        assert second.returncode == 13, said
        assert b"a coordinator is at work on this run already" in said
        training.finish()
        training.check()


@pytest.mark.slow
def test_a_coordinator_that_slept_is_superseded(training_log: Log, tmp_path: Path) -> None:
    """The second takes over from a stopped one; pservers obey it, and the first ends when it wakes up."""
    with Training(tmp_path, training_log, seed=25, lease_s=60.0, pserver_wait_s=60.0) as training:
        training.start()
        training.random_moment(0.1, 0.3)
        sleeping = training.pause("coordinator-0")
        second = start_second(training)
        try:
            wait_until(lambda: training.status()["incarnation"] == 2, "the second at work", 60)
            training.go_on(sleeping)
            # The first ends; its engine starts it again and again, and each time it is refused.
            second.wait(240)
            assert second.returncode == 0
        finally:
            second.kill()
            second.communicate()
        training.read_summary()
        training.check_ledger()
        training.check_every_sample_once()
        assert training.rollbacks == 0
