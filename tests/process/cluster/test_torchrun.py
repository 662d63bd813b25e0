"""The torchrun engine with a real torchrun: ranks, a group that is restarted, a stop."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from tests.process.cluster.processes import is_alive

from elasticctr.cluster.engine import RoleSpec
from elasticctr.cluster.torchrun import TorchrunEngine
from elasticctr.errors import ConfigError, FailedPrecondition

pytest.importorskip("torch")
RANK = """
import os, signal, sys, time
rank, restarts = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
print("rank", rank, "of", os.environ["WORLD_SIZE"], "restart", restarts)
if sys.argv[1] == "die" and restarts == "0" and rank == "1":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    time.sleep(60)
"""
COMMAND = (sys.executable, "-c", RANK)


def roles(what: str) -> list[RoleSpec]:
    return [RoleSpec("trainer", index, [what]) for index in range(2)]


def is_done(engine: TorchrunEngine) -> bool:
    return all(state.phase == "ended" for state in engine.states())


@pytest.mark.slow
def test_a_rank_that_dies_restarts_the_group(tmp_path: Path) -> None:
    engine = TorchrunEngine(tmp_path / "cluster", command=COMMAND)
    engine.start(roles("die"), log_dir=str(tmp_path / "logs"), max_restarts=2)
    try:
        states = engine.wait(lambda: is_done(engine))
    finally:
        engine.stop(1)
    assert [(state.phase, state.restarts) for state in states] == [("ended", 1), ("ended", 1)], states
    log = (tmp_path / "logs" / "trainer-1.log").read_text()
    assert "rank 1 of 2 restart 0" in log and "rank 1 of 2 restart 1" in log and "was killed by SIGKILL" in log


@pytest.mark.slow
def test_an_interrupted_group_is_not_started_again(tmp_path: Path) -> None:
    engine = TorchrunEngine(tmp_path / "cluster", command=COMMAND)
    engine.start(roles("wait"), log_dir=str(tmp_path / "logs"), max_restarts=5)
    try:
        engine.wait(lambda: all("rank" in _read(tmp_path / "logs" / f"trainer-{i}.log") for i in range(2)))
        time.sleep(0.2)
        pids = [state.pid for state in engine.states()]
        engine.interrupt()  # one of them is told; the other, which here does not agree with it, is not waited for
        states = engine.wait(lambda: is_done(engine))
    finally:
        engine.stop(1)
    assert [(state.phase, state.restarts) for state in states] == [("ended", 0), ("ended", 0)]
    assert not any(pid is not None and is_alive(pid) for pid in pids)


def test_what_a_group_cannot_do(tmp_path: Path) -> None:
    engine = TorchrunEngine(tmp_path)
    with pytest.raises(ConfigError, match="only starts trainers of the strategy collective"):
        engine.start([RoleSpec("pserver", 0, [])], log_dir=str(tmp_path), max_restarts=0)
    for change in (lambda: engine.add(roles("x")[0]), lambda: engine.remove("trainer-0")):
        with pytest.raises(FailedPrecondition, match="keeps its size"):
            change()


def _read(path: Path) -> str:
    return path.read_text().replace("trainer", "") if path.exists() else ""
