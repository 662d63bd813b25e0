"""Two coordinators of one run: the second is refused. (One that slept: tests/process/ps/coordinator/test_replay.py.)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.training import Log, Training

pytestmark = pytest.mark.timeout(900)


def start_second(training: Training, port: int = 0) -> subprocess.Popen[bytes]:
    run = training.run_dir
    command = [
        sys.executable,
        "-m",
        "elasticctr",
        "coordinator",
        "--config",
        str(run / "job.yaml"),
        "--port",
        str(port),
    ]
    return subprocess.Popen([*command, "--token-file", str(run / "cluster" / "token")], stderr=subprocess.PIPE)


@pytest.mark.slow
def test_a_second_coordinator_is_refused(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=24, epochs=12) as training:
        training.start()
        training.wait_samples(0.1)
        second = start_second(training)
        _, said = second.communicate(timeout=200)
        assert second.returncode == 13, said
        assert b"a coordinator is at work on this run already" in said
        training.finish()
        training.check()
