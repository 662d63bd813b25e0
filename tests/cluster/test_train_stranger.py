"""Trainers that do not belong to a job (another build, another schema, a wrong token) are refused with a reason;
the job does not notice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from elasticctr.errors import FailedPrecondition, Unauthorized
from elasticctr.net.access import write_token
from tests.cluster.harness import wait_until
from tests.cluster.training import START_S, Log, Training

_OTHER_BUILD = """
import sys
from elasticctr.ps import identity
identity.build = lambda: "0.0.1+1"
for module in list(sys.modules.values()):
    if getattr(module, "__name__", "").startswith("elasticctr.") and hasattr(module, "build"):
        module.build = identity.build
import elasticctr.ps.trainer.trainer
elasticctr.ps.trainer.trainer.build = identity.build
from elasticctr.cli.app import main
sys.exit(main())
"""


def start_stranger(training: Training, *arguments: str, code: str | None = None) -> subprocess.Popen[str]:
    """A trainer started by hand, which knows where the job is."""
    start = [sys.executable, "-m", "elasticctr"] if code is None else [sys.executable, "-c", code]
    return subprocess.Popen(
        [*start, "trainer", "--coordinator", str(training.run_dir), "--name", "stranger", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_strangers_are_turned_away(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=13, epochs=12) as training:
        training.start()
        wait_until(training.status, "the coordinator", START_S)
        own, token = str(training.run_dir / "job.yaml"), str(training.run_dir / "cluster" / "token")
        other = yaml.safe_load(Path(own).read_text())
        other["schema"]["slots"] = [slot for slot in other["schema"]["slots"] if slot["name"] != "3"]
        (tmp_path / "other.yaml").write_text(yaml.safe_dump(other))
        write_token(tmp_path / "wrong", "this is not the secret")
        strangers = [
            start_stranger(training, "--config", own, "--token-file", token, code=_OTHER_BUILD),
            start_stranger(training, "--config", str(tmp_path / "other.yaml"), "--token-file", token),
            start_stranger(training, "--config", own, "--token-file", str(tmp_path / "wrong")),
        ]
        expected = [
            (FailedPrecondition.exit_status, "0.0.1+1"),
            (FailedPrecondition.exit_status, "another job"),
            (Unauthorized.exit_status, "token"),
        ]
        for one, (status, words) in zip(strangers, expected, strict=True):
            try:
                said, _ = one.communicate(timeout=START_S)
            finally:
                one.kill()
            assert one.returncode == status and words in said and "Traceback" not in said, (one.returncode, said)
        training.finish()
        training.check()
        assert training.rollbacks == 0
