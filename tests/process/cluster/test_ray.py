"""The Ray engine on a real Ray of this machine with fake roles: placement, restarts, logs, and a node that is lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.process.cluster.jobs import FAKE, make_job
from tests.process.cluster.processes import SHELL, is_alive, read_pid, shell_role, until

from elasticctr.cluster.launch import begin
from elasticctr.cluster.run import run_job
from elasticctr.errors import ConfigError, Unavailable

ray = pytest.importorskip("ray", reason="no Ray: pip install 'elasticctr[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
# A node that is gone refuses connections, and that is noticed after three seconds rather than fifteen; one that is only
# slow still has ten seconds for every answer.
HEAD = {
    "num_cpus": 0,
    "include_dashboard": False,
    "_system_config": {
        "health_check_initial_delay_ms": 1000,
        "health_check_period_ms": 1000,
        "health_check_failure_threshold": 3,
    },
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes of one machine: the head takes no roles, so that any other can be lost."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args=HEAD)
    yield made
    made.shutdown()


@pytest.fixture
def nodes(cluster: Any) -> Iterator[list[Any]]:
    made = [cluster.add_node(num_cpus=4) for _ in range(2)]
    cluster.wait_for_nodes()
    yield made
    for node in made:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)


def make_engine(cluster: Any, command: Any = FAKE) -> Any:
    from elasticctr.cluster.ray import RayEngine

    return RayEngine(cluster.address, command=command)


def test_killed_roles_are_started_again(cluster: Any, nodes: list[Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    launch = begin(make_job(run), resume=False, is_one_machine=False)
    launch = replace(launch, roles=[_with(role, STEPS="150") for role in launch.roles])
    engine = make_engine(cluster)

    def harm() -> None:
        os.kill(read_pid(run / "trainer-1.pid"), signal.SIGKILL)
        until((run / "count").exists)
        until(lambda: any(s.name == "coordinator-0" and s.pid for s in engine.states()))
        pid = next(state.pid for state in engine.states() if state.name == "coordinator-0")
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=harm)
    thread.start()
    summary = run_job(launch, engine, resume=False, quiet=True)
    thread.join()
    assert summary.samples == 150
    restarts = {state.name: state.restarts for state in engine.states()}
    assert restarts == {"coordinator-0": 1, "pserver-0": 0, "pserver-1": 0, "trainer-0": 0, "trainer-1": 1}
    log = (run / "logs" / "trainer-1.log").read_text()
    assert log.count("started, process") == 2 and "was killed by SIGKILL" in log and log.count("threads") == 2
    assert not is_alive(read_pid(run / "pserver-1.pid"))
    assert not ray.is_initialized()


def test_roles_of_a_lost_node_are_placed_again(cluster: Any, nodes: list[Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    launch = begin(make_job(run), resume=False, is_one_machine=False)
    roles = [_with(role, STEPS="100000") for role in launch.roles]
    engine = make_engine(cluster)
    extra = cluster.add_node(num_cpus=4)
    engine.start(roles, log_dir=str(launch.logs), max_restarts=3)
    try:
        pids = {name: read_pid(run / f"{name}.pid") for name in ("pserver-0", "pserver-1", "trainer-0", "trainer-1")}
        engine.wait(lambda: all(state.phase == "running" for state in engine.states()))
        cluster.remove_node(nodes[0], allow_graceful=False)
        engine.wait(lambda: any(state.phase == "restarting" for state in engine.states()))
        engine.wait(lambda: all(state.phase == "running" for state in engine.states()))
        moved = [state for state in engine.states() if state.restarts]
        assert 1 <= len(moved) <= 4 and all("lost with its node" in state.reason for state in moved)
        for state in moved:
            if state.name in pids:
                until(lambda state=state: read_pid(run / f"{state.name}.pid") != pids[state.name])  # type: ignore[misc]
                assert not is_alive(pids[state.name])
    finally:
        engine.stop(1)
        cluster.remove_node(extra)
    assert {state.phase for state in engine.states()} == {"ended"}


def test_refusals_and_last_words(cluster: Any, nodes: list[Any], tmp_path: Path) -> None:
    engine = make_engine(cluster, SHELL)
    with pytest.raises(ConfigError, match="need 99 CPUs, but the Ray cluster has"):
        engine.start([shell_role("true", cpus=99)], log_dir=str(tmp_path), max_restarts=0)
    assert not ray.is_initialized()
    engine.start([shell_role("echo no; exit 10")], log_dir=str(tmp_path), max_restarts=5)
    try:
        states = engine.wait(lambda: False)
        assert states[0].phase == "failed" and "ConfigError" in states[0].reason
        assert "no\n" in (tmp_path / "trainer-0.log").read_text()
        engine.add(shell_role("sleep 60", index=1))
        engine.remove("trainer-1")
        assert [state.phase for state in engine.states()] == ["failed", "ended"]
    finally:
        engine.stop(0)


@pytest.mark.parametrize(
    ("address", "kind", "words"),
    [
        ("127.0.0.1:9", Unavailable, r"no Ray cluster at 127\.0\.0\.1:9"),
        ("ray://127.0.0.1:10001", ConfigError, "not of a Ray client server"),
        ("somewhere", ConfigError, "must be the host:port"),
    ],
)
def test_an_address_without_a_cluster(address: str, kind: type[Exception], words: str) -> None:
    from elasticctr.cluster.ray import RayEngine

    with pytest.raises(kind, match=words):
        RayEngine(address).start([shell_role("true")], log_dir="unused", max_restarts=0)


def _with(role: Any, **environment: str) -> Any:
    return replace(role, environment={**role.environment, **environment})
