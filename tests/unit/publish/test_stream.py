"""Versions while training, and from run directories by the command line: what is published is what predict says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.publish.learning import learn, make_job
from tests.unit.train.test_overfitting import make_cliff_job
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.errors import NotFound, Unavailable
from elasticctr.publish import dense as dense_side
from elasticctr.publish.stream import StreamPublisher
from elasticctr.run import train
from elasticctr.train.checkpoint import best_checkpoint
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.loading import load_learner
from elasticctr.train.reading import open_dataset
from elasticctr.versions import Repository
from elasticctr.versions.scoring import DenseGraph, make_inputs
from elasticctr.versions.serving_schema import parse_serving_schema
from elasticctr.versions.sparse import get_rows
from elasticctr.versions.verification import verify_version


def write_log(path: Path, count: int, seed: int) -> Path:
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        user, ad = random.integers(0, 300), random.integers(0, 50)
        tags = " ".join(f"tags:t{random.integers(0, 40)}" for _ in range(random.integers(0, 4)))
        dense = " ".join(f"x:{x:.4f}" for x in random.normal(size=2))
        lines.append(f"click:{int((user + ad) % 3 == 0)} user:u{user} ad:a{ad} {tags} {dense}".replace("  ", " "))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def make_log_job(tmp_path: Path, **more: Any) -> Job:
    train_log, valid = write_log(tmp_path / "train.txt", 2000, 1), write_log(tmp_path / "valid.txt", 400, 2)
    return make_job(
        tmp_path,
        data={"train": str(train_log), "valid": str(valid)},
        train={"threads": 1, "batch_size": 100, "epochs": 1},
        **more,
    )


def test_a_run_publishes_as_it_trains(tmp_path: Path) -> None:
    job = make_log_job(tmp_path, publish={"to": str(tmp_path / "repo"), "every_steps": 8, "max_chain": 2})
    train(job, quiet=True)
    repository = Repository(str(tmp_path / "repo"))
    found = repository.versions("run")
    assert [(m.version, m.kind, m.run["step"]) for m in found] == [(1, "base", 8), (2, "delta", 16), (3, "delta", 20)]
    for manifest in found:
        assert verify_version(repository, "run", manifest.version).worst <= 1e-6
    metrics = json.loads(repository.read_file("run", 3, "metrics.json"))
    assert 0 < metrics["train"]["auc"] < 1


def test_the_last_version_of_a_run_is_its_best_state(tmp_path: Path) -> None:
    job = make_cliff_job(tmp_path, publish={"to": str(tmp_path / "repo")})
    result = train(job, quiet=True)
    repository = Repository(str(tmp_path / "repo"))
    found = repository.versions("run")
    best = best_checkpoint(result.run_dir)
    assert best is not None and best.step == 40 < result.step
    assert [m.run["step"] for m in found] == [40, 80, 120, 40]
    assert verify_version(repository, "run", found[-1].version).worst <= 1e-6
    kept = next(load_learner(result.run_dir)[0].sparse.tables[0].rows())
    rows, is_there = get_rows(repository, repository.chain("run", found[-1].version), "main", kept.feasigns)
    assert is_there.all() and np.array_equal(rows, kept.weights)


@pytest.mark.slow
def test_the_command_line_from_run_to_rollback(tmp_path: Path) -> None:
    job = make_log_job(tmp_path)
    train(job, quiet=True)
    run, repo = str(tmp_path / "run"), str(tmp_path / "repo")

    def call(*arguments: str, status: int = 0) -> Any:
        result = CliRunner().invoke(app, [*arguments, "--json"])
        assert result.exit_code == status, result.output
        return json.loads(result.stdout)

    assert call("versions", "list", repo, status=12)["error"]["code"] == "NotFound"
    first = call("publish", run, "--repo", repo, "--model", "ctr")
    assert (first["version"], first["kind"]) == (1, "base")
    assert call("publish", run, "--repo", repo, "--model", "ctr", status=13)["error"]["code"] == "AlreadyExists"
    more = job.model_dump(mode="json", by_alias=True)
    more["train"]["epochs"] = 2
    train(Job.model_validate(more), resume=True, quiet=True)
    second = call("publish", run, "--repo", repo, "--model", "ctr", "--delta", "--checkpoint", "last")
    assert (second["version"], second["kind"], second["parent"]) == (2, "delta", 1)
    third = call("publish", run, "--repo", repo, "--model", "ctr", "--encoding", "int8", "--checkpoint", "last")
    assert third["kind"] == "base" and third["encoding_loss"]["samples"] == 400
    assert abs(third["encoding_loss"]["auc_loss"]) < 0.01
    listed = call("versions", "list", repo)["versions"]
    assert [(v["version"], v["live"]) for v in listed] == [(1, False), (2, False), (3, True)]
    assert all(0 < v["auc"] < 1 for v in listed)
    for version in (1, 2, 3):
        assert call("versions", "verify", f"{repo}/ctr/{version}")["worst"] <= 1e-6
    assert call("versions", "verify", run)["checkpoints"]
    assert call("versions", "rollback", repo, "ctr")["version"] == 2
    assert call("versions", "verify", f"{repo}/ctr")["version"] == 2
    assert call("versions", "prune", repo, "--keep", "1")["removed"] == []
    assert call("publish", run, "--repo", repo, "--model", "a/b", status=10)["error"]["code"] == "ConfigError"
    assert call("publish", run, "--repo", repo, "--checkpoint", "7", status=12)["error"]["code"] == "NotFound"
    assert call("versions", "verify", f"{repo}/ctr/9", status=12)["error"]["code"] == "NotFound"

    # Offline score = score from the version's files, to 1e-6, on data the version has never seen.
    out = tmp_path / "scores.txt"
    today = write_log(tmp_path / "today.txt", 300, 3)
    call("predict", f"{run}/checkpoints/step-000000000040", "--data", str(today), "--out", str(out))
    repository = Repository(repo)
    schema = parse_serving_schema(repository.read_file("ctr", 2, "schema.json"), "schema.json")
    graph = DenseGraph(repository.read_file("ctr", 2, "dense/model.onnx"), "model.onnx")
    chain = repository.chain("ctr", 2)
    scores = [
        graph.scores(make_inputs(schema, batch, lambda t, f: get_rows(repository, chain, t, f)))
        for batch in open_dataset(type(job.data.train)(path=str(today)), job.samples).iterate(batch_size=100)
    ]
    offline = np.loadtxt(out, dtype=np.float64)
    assert len(offline) == 300
    assert np.abs(np.concatenate(scores)[:, 0] - offline).max() <= 1e-6


def test_a_repository_that_fails_later_does_not_end_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job(tmp_path, publish={"to": str(tmp_path / "repo"), "every_steps": 1})
    learner = Learner(job)
    learn(learner, job, np.random.default_rng(0))
    assert job.publish is not None
    hook = StreamPublisher(job, job.publish, quiet=True)

    def refuse(*_: object) -> None:
        raise Unavailable("no answer")

    good = hook._publisher.publish
    monkeypatch.setattr(hook._publisher, "publish", refuse)
    with pytest.raises(Unavailable):
        hook(learner, 1, False)
    monkeypatch.setattr(hook._publisher, "publish", good)
    hook(learner, 2, False)
    monkeypatch.setattr(hook._publisher, "publish", refuse)
    learn(learner, job, np.random.default_rng(1))
    hook(learner, 3, False)
    monkeypatch.setattr(hook._publisher, "publish", good)
    learn(learner, job, np.random.default_rng(2))
    hook(learner, 4, False)
    repository = Repository(str(tmp_path / "repo"))
    assert [(m.kind, m.run["step"]) for m in repository.versions("run")] == [("base", 2), ("delta", 4)]
    assert "not published at step 3: no answer" in capsys.readouterr().err
    rows, found = get_rows(
        repository, repository.chain("run", 2), "main", next(learner.sparse.tables[0].rows()).feasigns
    )
    assert found.all() and np.array_equal(rows, next(learner.sparse.tables[0].rows()).weights)


def test_a_graph_that_cannot_be_filled_is_exported_again(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    learner = Learner(job)
    template = dense_side.GraphTemplate(learner)
    assert template.fill(learner) is not None
    del template._graph.graph.initializer[0]
    assert template.fill(learner) is None


def test_no_such_run(tmp_path: Path) -> None:
    from elasticctr.publish.runs import publish_run

    with pytest.raises(NotFound, match="not a run directory"):
        publish_run(tmp_path, str(tmp_path / "repo"))
