"""Processes with roles from Paddle's variables, on loopback, with fake roles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.process.cluster.jobs import FAKE, make_job
from tests.unit.compat.paddle_cloud.test_environment import PSERVER, TRAINER

from elasticctr.cluster.launch import find_free_port
from elasticctr.compat.paddle_cloud.assigned import find_token, fit_job
from elasticctr.compat.paddle_cloud.environment import read_environment
from elasticctr.errors import ConfigError
from elasticctr.net.access import read_token, write_token

COMMAND = """
import sys
from elasticctr.compat.paddle_cloud import assigned
from elasticctr.cluster.local import LocalEngine
fake = sys.argv[1:3]
assigned.LocalEngine = lambda: LocalEngine(fake)
assigned.ELASTICCTR = fake
sys.argv = ["elasticctr", *sys.argv[3:]]
from elasticctr.cli.app import main
main()
"""


def start(job: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", COMMAND, *FAKE, "train", str(job), "--json"]
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.promise(
    "roles started from PADDLE_* variables on 0.0.0.0 without a token",
    "the first pserver writes a secret into the run directory and all roles use it; without it a role does not start",
)
def test_four_processes_find_their_roles(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings: dict[str, Any] = make_job(run).model_dump(mode="json", by_alias=True)
    settings["cluster"] = None
    (tmp_path / "job.yaml").write_text(json.dumps(settings))
    ports = [find_free_port("127.0.0.1"), find_free_port("127.0.0.1")]
    shared = {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(f"127.0.0.1:{port}" for port in ports),
        "PADDLE_PSERVERS_NUM": "2",
        "PADDLE_TRAINERS_NUM": "2",
        "POD_IP": "127.0.0.1",
        "ELASTICCTR_COORDINATOR": f"127.0.0.1:{find_free_port('127.0.0.1')}",
        "STEPS": "40",
    }
    pservers = [
        start(tmp_path / "job.yaml", {**shared, "TRAINING_ROLE": "PSERVER", "PADDLE_PORT": str(p)}) for p in ports
    ]
    trainers = [
        start(
            tmp_path / "job.yaml",
            {**shared, "PADDLE_TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(i), "CPU_NUM": "3"},
        )
        for i in range(2)
    ]
    ends = [process.communicate(timeout=60) for process in (*pservers, *trainers)]
    assert [process.returncode for process in (*pservers, *trainers)] == [0, 0, 0, 0], ends
    assert json.loads(ends[0][0])["samples"] == 40
    assert "threads 3" in ends[2][0]
    for name in ("pserver-0", "pserver-1", "trainer-0", "trainer-1"):
        assert (run / f"{name}.pid").exists()
    assert read_token(run / "cluster" / "token")
    log = (run / "logs" / "pserver-0.log").read_text() + (run / "logs" / "coordinator-0.log").read_text()
    assert f"--port {shared['ELASTICCTR_COORDINATOR'].rpartition(':')[2]}" in log


def test_a_role_waits_for_the_secret_of_its_run_unless_it_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    job = make_job(run, coordinator_wait_s=1)
    with pytest.raises(ConfigError, match=r"no secret there.*elasticctr token FILE.*ELASTICCTR_TOKEN_FILE"):
        find_token(job, run, makes=False)
    made = find_token(job, run, makes=True)
    assert made == run / "cluster" / "token"
    assert find_token(job, run, makes=False) == made
    write_token(tmp_path / "given", "a secret for all roles")
    monkeypatch.setenv("ELASTICCTR_TOKEN_FILE", str(tmp_path / "given"))
    assert find_token(job, run, makes=True) == find_token(job, run, makes=False) == tmp_path / "given"
    (tmp_path / "given").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        find_token(job, run, makes=False)
    monkeypatch.delenv("ELASTICCTR_TOKEN_FILE")
    assert find_token(make_job(run, insecure=True), run, makes=True) is None
    monkeypatch.setenv("ELASTICCTR_INSECURE", "1")
    assert find_token(job, run, makes=False) is None


def test_a_role_and_an_engine_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(json.dumps(make_job(tmp_path / "run").model_dump(mode="json", by_alias=True)))
    command = [sys.executable, "-m", "elasticctr", "train", str(tmp_path / "job.yaml"), "--on", "local"]
    done = subprocess.run(command, env={**os.environ, **TRAINER}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 10 and "TRAINING_ROLE makes this process trainer-1" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({"trainers": 3}, "cluster.trainers of the job is 3, but the environment says 2"),
        ({"pservers": 1}, "cluster.pservers of the job is 1, but the environment says 2"),
        ({"strategy": "collective"}, "collective has no pservers"),
        ({"standby": True}, "cannot describe standbys"),
    ],
)
def test_a_job_that_says_otherwise_is_refused(tmp_path: Path, cluster: dict[str, Any], words: str) -> None:
    assigned = read_environment(PSERVER)
    assert assigned is not None
    with pytest.raises(ConfigError) as raised:
        fit_job(make_job(tmp_path, **cluster), assigned)
    assert words in str(raised.value)


def test_the_job_gets_the_counts_of_the_environment(tmp_path: Path) -> None:
    assigned = read_environment(PSERVER)
    assert assigned is not None
    job = fit_job(make_job(tmp_path).model_copy(update={"cluster": None}), assigned)
    assert job.cluster is not None and (job.cluster.trainers, job.cluster.pservers) == (2, 2)
