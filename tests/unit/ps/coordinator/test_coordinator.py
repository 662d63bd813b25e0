"""The coordinator's course with fake pservers and trainers: what the journal, the checkpoints and the reports say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.ps.conftest import LINES, find_url, make_job
from tests.unit.ps.run_record import done_chunks, events

from elasticctr.errors import AlreadyExists, DataError, FailedPrecondition
from elasticctr.ps.identity import build, job_identity
from elasticctr.train.checkpoint import list_checkpoints, open_checkpoint


def test_a_run_from_start_to_end(tmp_path: Path, world: Any) -> None:
    valid = {"data": {"valid": {"path": str(tmp_path / "valid"), "prefetch": 0}}}
    job = make_job(tmp_path, train={"epochs": 2}, **valid)
    w = world(job)
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    w.add_trainer("a")
    w.wait_for(lambda: w.status()["phase"] == "waiting for trainers")
    w.add_trainer("b")
    assert w.result() is True
    run = tmp_path / "run"
    done = done_chunks(run)
    assert len(done) == len(set(done)) and {chunk >> 32 for chunk in done} == {0, 1}
    end = events(run, "end")[-1]
    assert (end["reason"], end["samples"], end["step"] * 100 >= end["samples"]) == ("finished", 2 * LINES, True)
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["valid"]["samples"] == 500 and metrics["train"]["samples"] == LINES
    assert metrics["train"]["auc"] > 0.6 and metrics["valid"]["roc"]
    assert (run / "report.html").exists()
    data = {(e["split"], e["rows"], e["files"], e["bad_lines"]) for e in events(run, "data")}
    assert data == {("train", LINES, 3, 0), ("valid", 500, 1, 0)}
    assert len(events(run, "eval")) == 2 and events(run, "train")
    newest = open_checkpoint(run)
    assert newest.trainer["epoch"] == 2 and newest.trainer["data"] is None and newest.trainer["samples"] == 2 * LINES
    assert newest.trainer["identity"] == {"schema": "s", "model": "lr", "options": {}}
    assert {p.name for p in newest.path.iterdir()} >= {
        "pserver.0.json",
        "pserver.1.json",
        "main.1.table",
        "metrics.bin",
    }
    assert all(fake.forgotten == 2 << 32 for fake in w.servers)
    with pytest.raises(AlreadyExists, match="--resume"):
        world(job).start()


def test_work_of_a_trainer_that_dies_is_done_by_others_once(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, cluster={"lease_s": 1}))
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    w.add_trainer("a", dies_after=3)
    w.add_trainer("b", dies_after=7)
    w.wait_for(lambda: w.status()["chunks"].get("leased", 0) >= 2)
    w.add_trainer("c")
    assert w.result() is True
    assert events(tmp_path / "run", "end")[-1]["samples"] == LINES
    assert {e["name"] for e in events(tmp_path / "run", "gone")} >= {"a", "b"}
    done = done_chunks(tmp_path / "run")
    assert len(done) == len(set(done))


def test_stopping_writes_a_checkpoint_and_resuming_goes_on_from_it(tmp_path: Path, world: Any) -> None:
    job = make_job(tmp_path)
    w = world(job)
    w.allow(14)
    w.start()
    w.add_roles()
    w.wait_for(lambda: w.status()["step"] > 6)
    w.stop()
    assert w.result() is False
    run = tmp_path / "run"
    assert events(run, "end")[-1]["reason"] == "interrupted"
    saved = open_checkpoint(run).trainer
    assert 0 < saved["samples"] < LINES and saved["data"] == {"ledger": "ledger.json"}
    with pytest.raises(AlreadyExists, match="--resume"):
        world(job).start()
    # With another number of pservers.
    more = make_job(tmp_path, cluster={"pservers": 3})
    w = world(more)
    w.start(resume=True)
    for shard in range(3):
        w.add_pserver(shard)
    w.add_trainer("a")
    w.add_trainer("b")
    assert w.result() is True
    end = events(run, "end")[-1]
    assert (end["reason"], end["samples"]) == ("finished", LINES)
    done = done_chunks(run)
    assert len(done) == len(set(done))


def test_steps_end_a_run_and_the_journal_says_why(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path, train={"steps": 12, "epochs": 5}))
    w.start()
    w.add_roles()
    assert w.result() is True
    end = events(tmp_path / "run", "end")[-1]
    assert end["reason"] == "finished" and 12 <= end["step"] < 100  # of 150 in five epochs; a busy machine is told late


def test_the_best_state_is_loaded_for_the_test(tmp_path: Path, world: Any) -> None:
    data = {name: {"path": str(tmp_path / "valid"), "prefetch": 0} for name in ("valid", "test")}
    # The fakes' scores never change: the first epoch is the best, and patience runs out after the second.
    job = make_job(tmp_path, train={"epochs": 9, "early_stopping": {"patience": 1}}, data=data)
    w = world(job)
    w.start()
    w.add_roles()
    assert w.result() is True
    run = tmp_path / "run"
    assert events(run, "end")[-1]["reason"] == "early stopping"
    assert json.loads((run / "metrics.json").read_text())["test"]["samples"] == 500
    best = json.loads((run / "checkpoints" / "best.json").read_text())["checkpoint"]
    loads = [Path(o["directory"]).name for o in w.servers[0].orders if o["op"] == "load" and o["directory"]]
    assert loads == [best] and open_checkpoint(run / "checkpoints" / best).trainer["epoch"] == 1


def test_too_many_bad_lines_end_the_run(tmp_path: Path, world: Any) -> None:
    job = make_job(tmp_path)
    (tmp_path / "logs" / "part-1").write_text("rubbish\n" * 4000)
    w = world(job)
    w.start()
    w.add_roles()
    with pytest.raises(DataError, match=r"lines are bad, more than max_bad_fraction.*part-1"):
        w.result()


@pytest.mark.promise(
    "a body of many megabytes to the coordinator",
    "refused by its announced length; only reports with metrics may be long",
)
def test_only_reports_of_metrics_may_be_long(tmp_path: Path, world: Any) -> None:
    job = make_job(tmp_path)
    w = world(job)
    w.start()
    for path, status in {
        "join": 413, "beat": 413, "lease": 413, "give_back": 413, "leave": 413, "report": 413, "stop": 413,
        "progress": 400, "done": 400,
    }.items():  # fmt: skip
        answer = httpx.post(find_url(job.run_dir) + f"/v1/{path}", content=b" " * (2 << 20), timeout=60)
        assert answer.status_code == status, path
    w.stop()
    assert w.result() is False


@pytest.mark.promise(
    "a stranger joins with a wrong identity to learn the right one",
    "the refusal says nothing about the job; the difference is only in the coordinator's log",
)
def test_those_of_another_job_or_build_and_one_pserver_too_many_are_refused(tmp_path: Path, world: Any) -> None:
    job = make_job(tmp_path)
    w = world(job)
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    with pytest.raises(FailedPrecondition, match=r"no place for another pserver: the job has 2 pservers"):
        w.join("pserver", "third", address="127.0.0.1:1")
    with pytest.raises(FailedPrecondition, match=r"is of build 0\.0, the coordinator of"):
        w.client().join("trainer", "old", build="0.0", identity="", host="", pid=1)
    for identity in ("{}", '{"seed":0}', "[]"):
        with pytest.raises(FailedPrecondition, match="another job than the coordinator") as told:
            w.client().join("trainer", "stranger", build=build(), identity=identity, host="", pid=1)
        for part in ("batch_size", "schema", "100", "'lr'", job_identity(job).digest[:8]):
            assert part not in str(told.value)
    other = world(make_job(tmp_path, train={"batch_size": 7}))
    with pytest.raises(FailedPrecondition, match="another job than the coordinator"):
        other.join("trainer", "other")
    with pytest.raises(AlreadyExists, match="a coordinator is at work on this run already"):
        world(job).start()
    w.stop()
    assert w.result() is False


def test_a_pserver_short_of_memory_ends_the_run_with_a_checkpoint(tmp_path: Path, world: Any) -> None:
    w = world(make_job(tmp_path))
    w.allow(8)
    w.start()
    w.add_roles()
    w.wait_for(lambda: w.status()["step"] > 3)
    member = next(role["id"] for role in w.status()["roles"] if role["name"] == "pserver-0")
    w.client().report(member, "memory", "shard 0 has 7 rows, and 0.95 of 1.00 GiB are in use (ulimit -v)")
    w.allow()
    with pytest.raises(FailedPrecondition, match=r"0\.95 of 1\.00 GiB .*--pservers.*sparse\.admission"):
        w.result()
    assert list_checkpoints(tmp_path / "run" / "checkpoints")
