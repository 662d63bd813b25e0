"""The local engine with roles that are shell commands: restarts, ends, and no processes left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from tests.process.cluster.processes import SHELL, is_alive, leader_of, read_pid, shell_role, until

from elasticctr.cluster import supervised
from elasticctr.cluster.engine import RoleState
from elasticctr.cluster.local import LocalEngine
from elasticctr.errors import AlreadyExists, ConfigError, NotFound


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(supervised, "FIRST_PAUSE_S", 0.01)
    made = LocalEngine(SHELL)
    yield made
    made.stop(0)


def by_name(states: list[RoleState]) -> dict[str, RoleState]:
    return {state.name: state for state in states}


def is_done(engine: LocalEngine) -> bool:
    return all(state.phase == "ended" for state in engine.states())


def test_roles_run_with_their_environment_and_log(engine: LocalEngine, tmp_path: Path) -> None:
    roles = [
        shell_role('echo "$GREETING from $0"; echo oops >&2', environment={"GREETING": "hello"}),
        shell_role("exit 0", "pserver"),
    ]
    engine.start(roles, log_dir=str(tmp_path / "logs"), max_restarts=0)
    states = by_name(engine.wait(lambda: is_done(engine), poll_s=0.01))
    assert states["trainer-0"].phase == "ended" and states["trainer-0"].exit_status == 0
    lines = (tmp_path / "logs" / "trainer-0.log").read_text().splitlines()
    assert "hello from /bin/sh" in lines and "oops" in lines
    assert "started, process" in lines[0] or "started, process" in lines[1]
    assert lines[-1].endswith("trainer-0 ended normally")
    assert states["trainer-0"].log == str(tmp_path / "logs" / "trainer-0.log")


def test_a_role_that_dies_is_restarted_and_reported(engine: LocalEngine, tmp_path: Path) -> None:
    script = 'echo "run ${ELASTICCTR_RESTARTS:-0}"; test "$ELASTICCTR_RESTARTS" = 2 && exit 0; kill -9 $$'
    engine.start([shell_role(script)], log_dir=str(tmp_path), max_restarts=5)
    state = engine.wait(lambda: is_done(engine), poll_s=0.01)[0]
    assert (state.phase, state.restarts, state.exit_status) == ("ended", 2, 0)
    log = (tmp_path / "trainer-0.log").read_text()
    assert [line for line in log.splitlines() if line.startswith("run")] == ["run 0", "run 1", "run 2"]
    assert log.count("was killed by SIGKILL") == 2


def test_too_many_restarts_fail_the_job(engine: LocalEngine, tmp_path: Path) -> None:
    engine.start([shell_role("exit 19"), shell_role("sleep 60", "pserver")], log_dir=str(tmp_path), max_restarts=2)
    states = by_name(engine.wait(lambda: False, poll_s=0.01))
    assert states["trainer-0"].phase == "failed" and states["trainer-0"].restarts == 2
    assert "InternalError" in states["trainer-0"].reason and "after 2 restarts" in states["trainer-0"].reason
    assert states["pserver-0"].phase == "running"


@pytest.mark.parametrize(("status", "word"), [(10, "ConfigError"), (16, "Unauthorized"), (127, "not found")])
def test_a_mistake_that_stays_is_not_tried_again(engine: LocalEngine, tmp_path: Path, status: int, word: str) -> None:
    engine.start([shell_role(f"exit {status}")], log_dir=str(tmp_path), max_restarts=5)
    state = engine.wait(lambda: False, poll_s=0.01)[0]
    assert (state.phase, state.restarts) == ("failed", 0)
    assert word in state.reason


def test_pauses_between_restarts_grow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(supervised, "FIRST_PAUSE_S", 0.05)
    engine = LocalEngine(SHELL)
    engine.start([shell_role("date +%s.%N; exit 1")], log_dir=str(tmp_path), max_restarts=4)
    engine.wait(lambda: False, poll_s=0.005)
    lines = (tmp_path / "trainer-0.log").read_text().splitlines()
    times = [float(line) for line in lines if line[0].isdigit()]
    pauses = [after - before for before, after in pairwise(times)]
    assert len(pauses) == 4 and pauses[3] > 0.4 and pauses[3] > pauses[0]


def test_roles_have_a_session_of_their_own(engine: LocalEngine, tmp_path: Path) -> None:
    engine.start([shell_role("sleep 60")], log_dir=str(tmp_path), max_restarts=0)
    pid = engine.states()[0].pid
    assert pid is not None and leader_of(pid) == pid != os.getsid(0)


def test_stop_ends_children_too_and_kills_what_does_not_listen(engine: LocalEngine, tmp_path: Path) -> None:
    stubborn = f"trap '' TERM; sleep 61 & echo $! > {tmp_path}/child; while :; do sleep 0.05; done"
    engine.start([shell_role(stubborn), shell_role("sleep 60", index=1)], log_dir=str(tmp_path), max_restarts=9)
    child = read_pid(tmp_path / "child")
    pids = [state.pid for state in engine.states()]
    began = time.monotonic()
    engine.stop(0.3)
    assert time.monotonic() - began < 50
    until(lambda: not any(pid is not None and is_alive(pid) for pid in [*pids, child]))
    assert {state.phase for state in engine.states()} == {"ended"}


def test_a_role_that_dies_takes_its_children_along(engine: LocalEngine, tmp_path: Path) -> None:
    engine.start([shell_role(f"sleep 62 & echo $! > {tmp_path}/child; exit 1")], log_dir=str(tmp_path), max_restarts=0)
    engine.wait(lambda: False, poll_s=0.01)
    until(lambda: not is_alive(read_pid(tmp_path / "child")))


def test_roles_come_and_go_while_the_job_runs(engine: LocalEngine, tmp_path: Path) -> None:
    engine.start([shell_role("sleep 60")], log_dir=str(tmp_path), max_restarts=9)
    engine.add(shell_role("sleep 60", index=1))
    with pytest.raises(AlreadyExists, match="trainer-1"):
        engine.add(shell_role("sleep 60", index=1))
    with pytest.raises(NotFound, match="trainer-0, trainer-1"):
        engine.remove("trainer-7")
    engine.remove("trainer-0")
    states = by_name(engine.wait(lambda: True))
    assert states["trainer-0"].phase == "ended" and states["trainer-0"].restarts == 0
    assert states["trainer-1"].phase == "running"


def test_refusals_come_before_the_first_process(engine: LocalEngine, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two roles are named trainer-0"):
        engine.start([shell_role("sleep 60"), shell_role("sleep 60")], log_dir=str(tmp_path), max_restarts=0)
    with pytest.raises(ConfigError, match="MiB of memory"):
        engine.start([shell_role("sleep 60", memory_mib=1 << 40)], log_dir=str(tmp_path), max_restarts=0)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot write logs"):
        engine.start([shell_role("sleep 60")], log_dir=str(tmp_path / "file"), max_restarts=0)
    assert engine.states() == []


SUPERVISOR = """
import sys, time
from elasticctr.cluster.engine import RoleSpec
from elasticctr.cluster.local import LocalEngine
engine = LocalEngine(("/bin/sh", "-c"))
engine.start([RoleSpec("trainer", i, [f"echo $$ > {sys.argv[1]}/pid-{i}; exec sleep 63"]) for i in range(3)],
             log_dir=sys.argv[1], max_restarts=3)
engine.wait(lambda: False)
"""


def test_nothing_survives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(tmp_path)])
    pids = [read_pid(tmp_path / f"pid-{i}") for i in range(3)]
    assert all(is_alive(pid) for pid in pids)
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    until(lambda: not any(is_alive(pid) for pid in pids))
