"""The network between a trainer and all others is cut and restored: nothing is lost, nothing counts twice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from elasticctr.cluster.launch import begin
from tests.cluster.network import Network, why_not
from tests.cluster.training import Log, Training

pytestmark = pytest.mark.timeout(900)


class Roles:
    """The roles of a job, started by hand: each may have a separate network."""

    def __init__(self, training: Training, host: str) -> None:
        job = training.job
        assert job.cluster is not None
        self._launch = begin(
            job.model_copy(update={"cluster": job.cluster.model_copy(update={"host": host})}), resume=False
        )
        self._logs = training.run_dir / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._seen = training.seen

    def start(self, name: str, prefix: Sequence[str] = ()) -> None:
        (role,) = [one for one in self._launch.roles if one.name == name]
        with (self._logs / f"{name}.log").open("ab") as out:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "elasticctr", *role.arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        self.processes[name] = process
        self._seen.add(process.pid)

    @property
    def names(self) -> list[str]:
        return [role.name for role in self._launch.roles]

    def finish(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for name, process in self.processes.items():
            assert process.wait(max(deadline - time.monotonic(), 0.1)) == 0, name

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize(("cut_s", "epochs"), [(4, 4), (30, 60)])  # the other trainer alone is not done before
def test_the_network_of_a_trainer_is_cut(cut_s: int, epochs: int, training_log: Log, tmp_path: Path) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Network() as network, Training(tmp_path, training_log, seed=15, epochs=epochs) as training:
        roles = Roles(training, network.outside)
        try:
            for name in roles.names:
                roles.start(name, network.prefix if name == "trainer-1" else ())
            training.random_moment(0.1, 0.3)
            network.pull()
            time.sleep(cut_s)
            network.plug()
            roles.finish(600)
        finally:
            roles.end()
        training.read_summary()
        training.check()
        assert training.rollbacks == 0
