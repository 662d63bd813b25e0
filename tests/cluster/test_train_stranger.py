"""Trainers that do not belong to a job (another build, another schema, a wrong token) are turned away, and say why;
the job does not notice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from elasticctr.errors import FailedPrecondition, Unauthorized
from tests.cluster.training import Log, Training

_OTHER_BUILD = """
import sys
from elasticctr.ps import identity
identity.build = lambda: "0.0.1+1"
for module in list(sys.modules.values()):
    if getattr(module, "__name__", "").startswith("elasticctr.") and hasattr(module, "build"):
        module.build = identity.build
import elasticctr.ps.trainer
elasticctr.ps.trainer.build = identity.build
from elasticctr.cli.entry import main
sys.exit(main())
"""


def stranger(training: Training, *arguments: str, code: str | None = None, token: str | None = None) -> tuple[int, str]:
    """Runs a trainer by hand until it ends."""
    start = [sys.executable, "-m", "elasticctr"] if code is None else [sys.executable, "-c", code]
    secret = token or str(training.run_dir / "cluster" / "token")
    finding = ["--coordinator", str(training.run_dir), "--token-file", secret, "--name", "stranger"]
    done = subprocess.run(
        [*start, "trainer", *finding, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_strangers_are_turned_away(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=13, epochs=6) as training:
        training.start()
        training.wait_samples(0.02)
        own = str(training.run_dir / "job.yaml")

        status, said = stranger(training, "--job", own, code=_OTHER_BUILD)
        assert status == FailedPrecondition.exit_status and "0.0.1+1" in said and "Traceback" not in said, said

        other = yaml.safe_load(Path(own).read_text())
        other["schema"]["slots"] = [slot for slot in other["schema"]["slots"] if slot["name"] != "3"]
        (tmp_path / "other.yaml").write_text(yaml.safe_dump(other))
        status, said = stranger(training, "--job", str(tmp_path / "other.yaml"))
        assert status == FailedPrecondition.exit_status and "another job" in said and "Traceback" not in said, said

        (tmp_path / "wrong").write_text("not the secret\n")
        status, said = stranger(training, "--job", own, token=str(tmp_path / "wrong"))
        assert status == Unauthorized.exit_status and "token" in said and "Traceback" not in said, said

        training.finish()
        training.check()
        assert training.rollbacks == 0
