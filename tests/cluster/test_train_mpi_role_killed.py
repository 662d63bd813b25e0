"""A trainer and the coordinator of an mpirun are killed: the supervisors of their ranks restart them."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticctr.cluster.mpi import find_mpirun
from elasticctr.errors import FailedPrecondition
from tests.cluster.training import Log, Training


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_roles_of_an_mpirun_are_killed(training_log: Log, tmp_path: Path) -> None:
    try:
        find_mpirun()
    except FailedPrecondition as e:
        pytest.skip(str(e))
    hostfile = tmp_path / "hosts"
    hostfile.write_text("localhost slots=4\n")
    with Training(tmp_path, training_log, seed=12, epochs=4) as training:
        training.start("--on", "mpi", "--hostfile", str(hostfile))
        training.random_moment(0.1, 0.3)
        training.kill("trainer-1")
        training.random_moment(0.4, 0.5)
        training.kill("coordinator-0")
        training.finish()
        training.check()
        assert training.restarts("trainer-1") == 1 and training.restarts("coordinator-0") == 1
