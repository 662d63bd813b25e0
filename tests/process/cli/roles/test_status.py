"""`status` and `logs` of a run with fake roles, while it runs and after."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.process.cluster.jobs import FAKE, make_job
from tests.process.cluster.processes import until
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.cluster.launch import begin
from elasticctr.cluster.local import LocalEngine
from elasticctr.cluster.logs import Follower
from elasticctr.cluster.run import run_job
from elasticctr.net.access import write_token


def run_command(*arguments: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stdout, done.stderr


def test_status_and_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    launch = begin(make_job(run), resume=False)
    engine = LocalEngine(FAKE)
    monkeypatch.setenv("STEPS", "100000")
    engine.start(launch.roles, log_dir=str(launch.logs), max_restarts=0)
    try:
        until((run / "coordinator.json").exists)
        until((run / "count").exists)
        code, out, err = run_command("status", run, "--json")
        assert code == 0, err
        assert json.loads(out)["coordinator"]["phase"] == "training"
        code, out, _ = run_command("status", run)
        assert out.startswith("training  step") and "trainer-0" in out
        write_token(tmp_path / "other", "another-secret-of-16")
        assert run_command("status", run, "--token-file", tmp_path / "other")[0] == 16
        code, out, _ = run_command("stop", run)
        assert code == 0 and "--resume" in out
        engine.wait(lambda: all(state.phase == "ended" for state in engine.states()))
        assert (run / "events.jsonl").read_text().count('"interrupted"') == 1
    finally:
        engine.stop(0)
    code, out, _ = run_command("status", run)
    assert code == 0 and "no coordinator answers" in out
    assert run_command("status", tmp_path)[0] == 12
    assert run_command("checkpoint", run)[0] == 17, "nobody is there to take it"

    code, out, _ = run_command("logs", run)
    assert code == 0 and "coordinator-0 | arguments coordinator --config" in out and "pserver-1     | --- " in out
    code, out, _ = run_command("logs", run, "trainer-0", "-n", "1")
    assert out.count("\n") == 1 and "ended normally" in out
    code, out, _ = run_command("logs", run, "trainer-0", "--json")
    assert json.loads(out.splitlines()[0])["role"] == "trainer-0"
    code, _, err = run_command("logs", run, "trainer-7")
    assert code == 12 and "only of coordinator-0, pserver-0" in err


def test_status_after_the_end_says_how_processes_ended(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_job(begin(make_job(run), resume=False), LocalEngine(FAKE), resume=False, quiet=True)
    code, out, _ = run_command("status", run, "--json")
    answer = json.loads(out)
    assert code == 0 and answer["coordinator"] is None and answer["engine"] == "local"
    assert {state["name"]: state["phase"] for state in answer["processes"]}["trainer-1"] == "ended"


def test_following_a_log(tmp_path: Path) -> None:
    path = tmp_path / "trainer-0.log"
    path.write_text("one\ntwo\nthr")
    follower = Follower(path, 1)
    assert follower.read() == ["two"]
    with path.open("a") as log:
        log.write("ee\nfour\n")
    assert follower.read() == ["three", "four"]
    assert follower.read() == []
    path.write_text("anew\n")
    assert follower.read() == ["anew"]


def test_logs_follow_until_interrupted(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "trainer-0.log"
    log.write_text("before\n")
    command = [sys.executable, "-u", "-m", "elasticctr", "logs", str(tmp_path), "-f"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "before\n"
        with log.open("a") as file:
            file.write("after\n")
        assert process.stdout.readline() == "after\n"
    finally:
        process.kill()
        process.wait()
