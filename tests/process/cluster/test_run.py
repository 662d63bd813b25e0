"""A job on the local engine with fake roles: its course, its end, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.process.cluster.jobs import FAKE, make_job
from tests.process.cluster.processes import is_alive, read_pid, until

from elasticctr.cluster.engine import RoleState
from elasticctr.cluster.feed import ask_status
from elasticctr.cluster.launch import begin, one_thread_per_cpu, share_threads
from elasticctr.cluster.local import LocalEngine
from elasticctr.cluster.run import EngineOptions, _JobWatch, run_job, train_on
from elasticctr.errors import (
    AlreadyExists,
    ConfigError,
    FailedPrecondition,
    InternalError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from elasticctr.train.job import PublishSettings


def test_a_run_ends_with_the_summary_of_its_files(tmp_path: Path) -> None:
    launch = begin(make_job(tmp_path / "run", standby=True), resume=False)
    assert [role.name for role in launch.roles] == [
        "coordinator-0",
        "pserver-0",
        "pserver-1",
        "standby-0",
        "standby-1",
        "trainer-0",
        "trainer-1",
    ]
    summary = run_job(launch, LocalEngine(FAKE), resume=False, quiet=True)
    assert (summary.samples, summary.step, summary.is_finished, summary.seconds) == (10, 10, True, 2.0)
    assert summary.metrics["valid"]["auc"] == 0.75
    assert (tmp_path / "run" / "report.html").exists()
    log = (tmp_path / "run" / "logs" / "coordinator-0.log").read_text()
    assert f"--config {tmp_path}/run/job.yaml" in log and "--resume" not in log
    noted = json.loads((tmp_path / "run" / "cluster" / "roles.json").read_text())
    assert {role["phase"] for role in noted["roles"]} == {"ended"} and noted["engine"] == "local"
    for name in ("pserver-0", "trainer-1"):
        assert not is_alive(read_pid(tmp_path / "run" / f"{name}.pid"))


def test_killed_roles_are_started_again_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS", "60")
    run = tmp_path / "run"
    launch = begin(make_job(run), resume=False)
    engine = LocalEngine(FAKE)

    def harm() -> None:
        for state in engine.states():
            if state.name in ("coordinator-0", "trainer-1"):
                read_pid(run / "trainer-1.pid")
                until((run / "count").exists)
                assert state.pid is not None
                os.kill(state.pid, signal.SIGKILL)

    timer = threading.Timer(0.8, harm)
    timer.start()
    summary = run_job(launch, engine, resume=False, quiet=True)
    timer.join()
    assert summary.samples == 60
    restarts = {state.name: state.restarts for state in engine.states()}
    assert restarts == {"coordinator-0": 1, "pserver-0": 0, "pserver-1": 0, "trainer-0": 0, "trainer-1": 1}


@pytest.mark.parametrize(
    ("crash", "kind", "words"),
    [
        ("trainer-1:10", ConfigError, "Reason: trainer-1 does not want to"),
        ("pserver-0:15", FailedPrecondition, "pserver-0 exited with status 15"),
        ("coordinator-0:19", InternalError, "after 1 restarts"),
    ],
)
def test_a_role_that_fails_for_good_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: str, kind: type[Exception], words: str
) -> None:
    monkeypatch.setenv("CRASH", crash)
    monkeypatch.setenv("STEPS", "100000")
    run = tmp_path / "run"
    launch = begin(make_job(run, max_restarts=1), resume=False)
    engine = LocalEngine(FAKE)
    with pytest.raises(kind, match=words) as raised:
        run_job(launch, engine, resume=False, quiet=True)
    assert f"{run}/logs/{crash.partition(':')[0]}.log" in str(raised.value)
    assert all(state.pid is None for state in engine.states())


def test_trainers_that_ended_leave_work_unless_the_run_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator may still be publishing the last version then."""
    monkeypatch.setattr("elasticctr.cluster.run.NO_TRAINER_S", -1.0)
    launch = begin(make_job(tmp_path / "run"), resume=False)
    states = [RoleState("coordinator-0", "running"), RoleState("trainer-0", "ended"), RoleState("trainer-1", "ended")]
    events = tmp_path / "run" / "events.jsonl"
    before = {"event": "end", "time": time.time() - 5, "step": 1, "reason": "interrupted"}
    events.write_text(json.dumps(before) + "\n")
    watch = _JobWatch(launch, LocalEngine(FAKE))
    with pytest.raises(FailedPrecondition, match="work is left"):
        watch.is_over(states)
    with events.open("a") as out:
        out.write(json.dumps({**before, "time": time.time() + 5, "reason": "finished"}) + "\n")
    assert not watch.is_over(states)
    assert watch.is_over([RoleState("coordinator-0", "ended"), *states[1:]])


def test_refusals_touch_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(ConfigError, match="more than 256"):
        begin(make_job(run, trainers=300), resume=False)
    with pytest.raises(NotFound, match="token file"):
        begin(make_job(run, token_file=str(tmp_path / "none")), resume=False)
    with pytest.raises(NotFound, match="no checkpoint to resume from"):
        begin(make_job(run), resume=True)
    with pytest.raises(ConfigError, match=r"cluster\.host"):
        begin(make_job(run, host="203.0.113.9"), resume=False)
    publishing = make_job(run, strategy="collective").model_copy(update={"publish": PublishSettings(to="repo")})
    with pytest.raises(ConfigError, match="a collective run cannot publish while it trains"):
        begin(publishing, resume=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Unavailable, match="choose another port"):
            begin(make_job(run), resume=False, coordinator_port=taken.getsockname()[1])
    assert not run.exists()
    run.mkdir()
    (run / "metrics.json").write_text("{}")
    with pytest.raises(AlreadyExists, match="--resume"):
        begin(make_job(run), resume=False)


def test_the_secret_is_the_owners_alone_and_stays(tmp_path: Path) -> None:
    first = begin(make_job(tmp_path / "run"), resume=False)
    path = tmp_path / "run" / "cluster" / "token"
    assert path.stat().st_mode & 0o777 == 0o600
    assert first.token == path.read_text().strip()
    for role in first.roles:
        assert first.token not in " ".join(role.arguments)


def test_two_launches_of_one_run_are_kept_apart(tmp_path: Path) -> None:
    first = begin(make_job(tmp_path / "run"), resume=False)
    with pytest.raises(FailedPrecondition, match=f"process {os.getpid()} of .* is training this run"):
        begin(make_job(tmp_path / "run"), resume=False)
    assert first.lock is not None
    first.lock.close()
    assert begin(make_job(tmp_path / "run"), resume=False).token == first.token


def test_trainers_share_the_cpus_unless_the_job_says_how_many(tmp_path: Path) -> None:
    launch = begin(make_job(tmp_path / "run"), resume=False)
    threads = [r.environment.get("ELASTICCTR__TRAIN__THREADS") for r in share_threads(launch.job, launch.roles)]
    assert threads == [None] * 3 + [str(max(1, len(os.sched_getaffinity(0)) // 2))] * 2
    job = launch.job.model_copy(update={"train": launch.job.train.model_copy(update={"threads": 3})})
    assert share_threads(job, launch.roles)[-1].environment["ELASTICCTR__TRAIN__THREADS"] == "3"
    assert [role.cpus for role in one_thread_per_cpu(job, launch.roles)] == [0.5, 1, 1, 3, 3]


COMMAND = """
import sys
from pathlib import Path
from elasticctr.cluster import run
from elasticctr.cluster.local import LocalEngine
fake = sys.argv[1:3]
run.LocalEngine = lambda: LocalEngine(fake)
sys.argv = ["elasticctr", *sys.argv[3:]]
from elasticctr.cli.app import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_writes_a_checkpoint_and_says_how_to_resume(tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "run"
    job = make_job(run)
    (tmp_path / "job.yaml").write_text(json.dumps(job.model_dump(mode="json", by_alias=True)))
    command = [sys.executable, "-c", COMMAND, *FAKE, "train", str(tmp_path / "job.yaml"), "--on", "local", "--json"]
    process = subprocess.Popen(
        command, env={**os.environ, "STEPS": "100000"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    pids = [read_pid(run / f"{name}.pid") for name in ("trainer-0", "pserver-1")]
    until((run / "count").exists)
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert f"elasticctr train {run}/job.yaml --run-dir {run} --resume --on local" in err
    answer = json.loads(out)
    assert answer["finished"] is False and answer["metrics"] == {"valid": {"auc": 0.75, "rows": 7}}
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_job_that_is_stopping_at_once(tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "run"
    (tmp_path / "job.yaml").write_text(json.dumps(make_job(run).model_dump(mode="json", by_alias=True)))
    command = [sys.executable, "-c", COMMAND, *FAKE, "train", str(tmp_path / "job.yaml"), "--on", "local", "--json"]
    # Its coordinator is stopping for as long as this test may run.
    environment = {**os.environ, "STEPS": "100000", "LINGER_S": "900"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pids = [read_pid(run / f"{name}.pid") for name in ("trainer-0", "pserver-1")]
    until((run / "count").exists)
    process.send_signal(number)
    until((run / "over").exists)
    process.send_signal(number)
    _, err = process.communicate(timeout=100)
    assert process.returncode == (130 if number == signal.SIGINT else -number), err
    coordinator = json.loads((run / "cluster" / "roles.json").read_text())["roles"][0]
    assert coordinator["name"] == "coordinator-0"
    until(lambda: not any(is_alive(pid) for pid in [*pids, coordinator["pid"]]))


def test_the_status_wants_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS", "100000")
    launch = begin(make_job(tmp_path / "run"), resume=False)
    launch = replace(launch, roles=launch.roles[:1])
    engine = LocalEngine(FAKE)
    engine.start(launch.roles, log_dir=str(launch.logs), max_restarts=0)
    try:
        assert launch.coordinator is not None
        deadline = time.monotonic() + 60
        while True:
            try:
                assert ask_status(launch.coordinator, launch.token)["phase"] == "training"
                break
            except Unavailable:
                assert time.monotonic() < deadline
        with pytest.raises(Unauthorized):
            ask_status(launch.coordinator, "wrong-secret")
    finally:
        engine.stop(0)


@pytest.mark.promise(
    "--hostfile or --ray-address with an engine that does not read it", "ConfigError says which --on it is for"
)
@pytest.mark.parametrize("engine", ["local", "ray", "mpi", "torchrun"])
def test_options_of_other_engines_are_refused(engine: str, tmp_path: Path) -> None:
    job = make_job(tmp_path / "run")
    for wanted, options in (
        ("mpi", EngineOptions(hostfile=tmp_path / "hosts")),
        ("ray", EngineOptions(ray_address="localhost:1")),
    ):
        if engine != wanted:
            with pytest.raises(ConfigError, match=f"is for --on {wanted}"):
                train_on(job, engine, resume=False, quiet=True, options=options)
    assert not (tmp_path / "run").exists()
