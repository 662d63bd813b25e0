"""A trainer started by hand joins a job that runs, takes its share of the work, and ends with the job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.harness import wait_until
from tests.cluster.training import START_S, Log, Training


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_trainer_joins_a_running_job(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=20, trainers=1, lease_s=120.0) as training:
        training.start()
        training.wait_samples(0.05)
        alone = training.pause("trainer-0")  # until the other is there, however long that takes
        job, token = training.run_dir / "job.yaml", training.run_dir / "cluster" / "token"
        command = ["trainer", "--coordinator", str(training.run_dir), "--config", str(job), "--token-file", str(token)]
        other = subprocess.Popen(
            [sys.executable, "-m", "elasticctr", *command, "--name", "other"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        try:
            wait_until(lambda: _samples_of(training, "other") > 0, "work of the other", START_S)
            training.go_on(alone)
            training.finish()
            said, _ = other.communicate(timeout=START_S)
        finally:
            other.kill()
        assert other.returncode == 0, said
        (samples,) = re.findall(r"trainer other: ([\d,]+) samples", said)
        assert 0 < int(samples.replace(",", "")) < training.total
        training.check()
        assert training.rollbacks == 0


def _samples_of(training: Training, name: str) -> int:
    roles = {role["name"]: role for role in training.status()["roles"]}
    return int(roles.get(name, {}).get("stats", {}).get("samples", 0))
