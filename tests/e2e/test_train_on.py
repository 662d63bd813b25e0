"""The same job on every engine, with real roles: the result is that of one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticctr.cluster.launch import find_free_port
from elasticctr.cluster.mpi import find_mpirun
from elasticctr.errors import FailedPrecondition
from tests.e2e.conftest import Run, answer, assert_clean_failure

MANY = ("--pservers", "2", "--trainers", "2", "--set", "cluster.chunk_mib=1", "--json")


def expected_samples(invoke: Run, job: Path, tmp_path: Path, *settings: str) -> dict[str, Any]:
    """The job in one process."""
    return answer(invoke("train", job, "--run-dir", tmp_path / "one", "--json", *settings))


@pytest.mark.timeout(900)
def test_local_engine_gives_the_result_of_one_process(elasticctr: Run, invoke: Run, job: Path, tmp_path: Path) -> None:
    one = expected_samples(invoke, job, tmp_path)
    many = answer(elasticctr("train", job, "--on", "local", *MANY, timeout_s=400))
    assert set(many) == set(one) and many["finished"] and many["samples"] == one["samples"]
    assert set(many["metrics"]) == {"train", "valid"}
    assert many["metrics"]["valid"]["samples"] == one["metrics"]["valid"]["samples"]
    assert abs(many["metrics"]["valid"]["auc"] - one["metrics"]["valid"]["auc"]) < 0.1
    run = tmp_path / "run"
    for name in ("job.yaml", "environment.json", "events.jsonl", "metrics.json", "report.html", "checkpoints"):
        assert (run / name).exists()
    # What it left is a run like any other.
    metrics = answer(invoke("eval", run, "--json"))
    assert metrics["auc"] == pytest.approx(many["metrics"]["valid"]["auc"], abs=1e-6)
    assert_clean_failure(invoke("train", job, "--on", "local"), 13, "--resume")
    assert_clean_failure(invoke("train", job, "--on", "torchrun", "--run-dir", tmp_path / "x"), 10, "async")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ctrl_c_then_resume(elasticctr: Run, invoke: Run, job: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    whole = [*MANY, "--set", "train.epochs=12"]
    command = [sys.executable, "-m", "elasticctr", "train", str(job), "--on", "local", *whole]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not list((run / "checkpoints").glob("step-*")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    stopped = json.loads(out)
    assert not stopped["finished"] and f"train {run}/job.yaml --run-dir {run} --resume" in err
    # With other numbers of both.
    done = answer(
        elasticctr("train", run / "job.yaml", "--resume", "--trainers", "1", "--pservers", "1", "--json", timeout_s=400)
    )
    one = expected_samples(invoke, job, tmp_path)
    assert done["finished"] and done["samples"] == one["samples"] * 6 > stopped["samples"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_versions_are_published_while_pservers_train(elasticctr: Run, invoke: Run, job: Path, tmp_path: Path) -> None:
    """The last of them is the finished model, whose run is evaluated, scored with and verified like any other."""
    repo, run, scores = tmp_path / "repo", tmp_path / "run", tmp_path / "scores.parquet"
    publish = ["--set", f"publish.to={repo}", "--set", "publish.model=ctr", "--set", "publish.every_steps=40"]
    trained = answer(elasticctr("train", job, "--on", "local", *MANY, *publish, timeout_s=400))
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [e for e in events if e["event"] == "publish_failed"] == []
    steps = [e["of_step"] for e in events if e["event"] == "publish"]
    end = next(e for e in events if e["event"] == "end")
    assert steps == sorted(set(steps)) and steps[-1] == end["step"]
    found = answer(invoke("versions", "list", repo, "--json"))["versions"]
    assert [(v["version"], v["kind"]) for v in found] == [(n, "base") for n in range(1, len(steps) + 1)]
    answer(invoke("versions", "verify", f"{repo}/ctr", "--json"))

    evaluated = answer(invoke("eval", run, "--json"))
    assert evaluated["auc"] == pytest.approx(trained["metrics"]["valid"]["auc"], abs=1e-6)
    assert answer(invoke("predict", run, "--out", scores, "--json"))["rows"] == evaluated["samples"]
    import pyarrow.parquet as pq
    from sklearn.metrics import roc_auc_score

    table = pq.read_table(scores)
    assert roc_auc_score(table["label"], table["score"]) == pytest.approx(evaluated["auc"], abs=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["mpi", "ray", "torchrun"])
def test_other_engines(elasticctr: Run, invoke: Run, job: Path, tmp_path: Path, engine: str) -> None:
    if engine == "ray":
        pytest.importorskip("ray", reason="no Ray: pip install 'elasticctr[ray]'")
    if engine == "mpi":
        try:
            find_mpirun()
        except FailedPrecondition as e:
            pytest.skip(str(e))
    strategy = ["--strategy", "collective"] if engine == "torchrun" else []
    # Two ranks step together: their batches make one, and half as many steps.
    union = ["--set", "train.batch_size=512"] if engine == "torchrun" else []
    one = expected_samples(invoke, job, tmp_path, *union)
    many = answer(elasticctr("train", job, "--on", engine, *strategy, *MANY, timeout_s=800))
    assert set(many) == set(one) and many["finished"] and many["samples"] == one["samples"]
    assert abs(many["metrics"]["valid"]["auc"] - one["metrics"]["valid"]["auc"]) < 0.1
    logs = {path.stem for path in (tmp_path / "run" / "logs").iterdir()}
    assert {"trainer-0", "trainer-1"} <= logs and ("pserver-1" in logs) == (engine != "torchrun")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_roles_by_paddles_variables(invoke: Run, job: Path, tmp_path: Path) -> None:
    """Two pservers and two trainers as four pods would be, on loopback."""
    one = expected_samples(invoke, job, tmp_path)
    settings = yaml.safe_load(job.read_text())
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**settings, "cluster": {"chunk_mib": 1}}))
    ports = [find_free_port("127.0.0.1") for _ in range(3)]
    shared = {
        "PADDLE_PSERVERS_IP_PORT_LIST": f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}",
        "PADDLE_PSERVERS_NUM": "2",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_IS_LOCAL": "0",
        "POD_IP": "127.0.0.1",
        "PADDLE_CURRENT_IP": "127.0.0.1",
        "CPU_NUM": "1",
        "ELASTICCTR_COORDINATOR": f"127.0.0.1:{ports[2]}",
    }
    roles = [{"TRAINING_ROLE": "PSERVER", "PADDLE_PORT": str(port)} for port in ports[:2]]
    roles += [{"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(index)} for index in range(2)]
    command = [sys.executable, "-m", "elasticctr", "train", str(tmp_path / "job.yaml"), "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env={**os.environ, **shared, **role}, **pipes) for role in roles]
    try:
        ends = [process.communicate(timeout=400) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0, 0, 0], ends
    result = json.loads(ends[0][0])
    assert result["finished"] and result["samples"] == one["samples"]
