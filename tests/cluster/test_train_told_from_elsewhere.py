"""`elasticctr checkpoint` and `elasticctr stop` from another terminal, then a resume: every sample counts once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from elasticctr.train.checkpoint import list_checkpoints, open_checkpoint
from tests.cluster.harness import wait_until
from tests.cluster.training import START_S, Log, Training


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_checkpoint_then_a_stop_then_a_resume(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=21, epochs=24, checkpoint_s=600) as training:
        training.start()
        training.wait_samples(0.02)
        assert tell(training, "checkpoint") == {"run_dir": str(training.run_dir), "asked": "checkpoint"}
        checkpoints = training.run_dir / "checkpoints"
        wait_until(lambda: list_checkpoints(checkpoints), "a checkpoint", START_S)
        assert tell(training, "stop")["asked"] == "stop"
        training.finish(status=130)
        saved = open_checkpoint(training.run_dir).trainer["samples"]
        assert 0 < saved < training.total
        training.check_nothing_left()
        training.start("--resume")
        training.finish()
        training.check()


def tell(training: Training, command: str) -> dict[str, str]:
    arguments = [sys.executable, "-m", "elasticctr", command, str(training.run_dir), "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, str] = json.loads(done.stdout)
    return answer
