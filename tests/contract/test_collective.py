"""The collective strategy: ranks that train in step are one process on all their batches together."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
from tests.cluster.harness import wait_until
from tests.contract.ranks import ending, finish, make_log, rank_pids, start_group, start_ranks, train, write_job

from elasticctr.collective.work import EpochLedger, deal
from elasticctr.data.batch import Batch
from elasticctr.data.chunks import read_chunk
from elasticctr.data.cutting import cut_data, order_chunks
from elasticctr.errors import Unavailable
from elasticctr.train.checkpoint import open_checkpoint
from elasticctr.train.evaluation import evaluate
from elasticctr.train.events import read_events
from elasticctr.train.job import Job, load_job
from elasticctr.train.learner import Learner
from elasticctr.train.reading import PreparedBatch, open_dataset

EPOCHS = 2


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("collective") / "log"
    make_log(path, 10_000)
    return path


def union_batches(job: Job, ranks: int) -> Iterator[Batch]:
    """What all ranks learn from in each step, in the order of the ranks."""
    assert job.cluster is not None
    settings = job.data.train
    cut = cut_data(settings, job.samples, int(job.cluster.chunk_mib * 2**20)).chunks
    for epoch in range(job.train.epochs):
        chunks = order_chunks(cut, epoch, job.train.seed, is_shuffled=settings.shuffle_rows > 0)
        streams = []
        for rank in range(ranks):
            (work,) = deal(chunks, EpochLedger(epoch), rank, ranks)
            streams.append(
                batch
                for chunk, first in work
                for batch in read_chunk(chunk, job.samples, settings, job.train.batch_size, first_batch=first)
            )
        for batches in zip_longest(*streams):
            yield Batch.concat([batch for batch in batches if batch is not None])


def learn_in_one_process(job: Job, ranks: int) -> tuple[Learner, int]:
    learner = Learner(job)
    steps = 0
    for batch in union_batches(job, ranks):
        learner.step(PreparedBatch(batch, learner.look_up(batch), {}))
        steps += 1
        if steps == job.train.steps:
            break
    return learner, steps


def assert_same(ours: Learner, theirs: Learner, tolerance: float) -> None:
    difference = (ours.flat_dense() - theirs.flat_dense()).abs().max().item()
    assert difference <= tolerance, f"dense: {difference}"
    for a, b in zip(ours.sparse.tables, theirs.sparse.tables, strict=True):
        assert len(a) == len(b) > 0
        for rows in a.rows():
            found = b.get(rows.feasigns)
            assert found.found.all()
            np.testing.assert_allclose(rows.weights, found.weights, rtol=0, atol=tolerance)
            np.testing.assert_allclose(rows.shows, found.shows, rtol=1e-6)
            np.testing.assert_allclose(rows.clicks, found.clicks, rtol=1e-6)


@pytest.mark.parametrize("ranks", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2)), 3])
def test_equals_one_process_on_the_union_batch(ranks: int, log: Path, tmp_path: Path) -> None:
    job = train(write_job(tmp_path / "job.yaml", log, tmp_path / "run"), ranks)
    expected, steps = learn_in_one_process(job, ranks)
    assert steps >= 200
    checkpoint = open_checkpoint(job.run_dir)
    assert checkpoint.step == steps
    assert checkpoint.trainer["samples"] == 10_000
    assert len(checkpoint.table_parts("main")) == ranks
    learned = Learner(job)
    learned.load(checkpoint)
    assert_same(learned, expected, 1e-5)


def occurrences(job: Job) -> dict[int, float]:
    """How often each feasign occurs in all epochs."""
    counts: dict[int, float] = {}
    for batch in open_dataset(job.data.train, job.samples):
        for feasign, count in zip(*np.unique(batch.values, return_counts=True), strict=True):
            counts[int(feasign)] = counts.get(int(feasign), 0.0) + float(count) * job.train.epochs
    return counts


def assert_every_sample_once(job: Job) -> None:
    """By the ledger, and by the shows that rows counted."""
    checkpoint = open_checkpoint(job.run_dir)
    assert checkpoint.trainer["samples"] == 10_000 * job.train.epochs
    learned = Learner(job)
    learned.load(checkpoint)
    (table,) = learned.sparse.tables
    shows = {int(f): float(s) for rows in table.rows() for f, s in zip(rows.feasigns, rows.shows, strict=True)}
    assert shows == occurrences(job)


def wait_for_checkpoints(run_dir: Path, count: int) -> None:
    folder = run_dir / "checkpoints"
    steps = set[str]()

    def seen() -> bool:
        steps.update(path.parent.name for path in folder.glob("step-*/manifest.json"))
        return len(steps) >= count

    wait_until(seen, f"{count} checkpoints in {folder}", 300, every_s=0.005)


def damage(path: Path) -> None:
    """Flips a bit that only reading the rows reveals: ranks then use the previous checkpoint."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.story
def test_a_killed_rank_ends_the_others_and_fewer_go_on_exactly_once(log: Path, tmp_path: Path) -> None:
    path = write_job(tmp_path / "job.yaml", log, tmp_path / "run", train__epochs=EPOCHS, train__checkpoint_every=25)
    ranks = start_ranks(path, 3)
    with ending(*ranks):
        wait_for_checkpoints(tmp_path / "run", 2)
        ranks[1].kill()
        ends = finish(ranks)
    for status, output in (ends[0], ends[2]):
        assert status == Unavailable("").exit_status
        assert "another rank is gone" in output and "Traceback" not in output
    before = open_checkpoint(tmp_path / "run")
    assert 0 < before.trainer["samples"] < 10_000 * EPOCHS
    damage(before.table_parts("main")[2])
    assert_every_sample_once(train(path, 2, "--resume"))


@pytest.mark.slow
@pytest.mark.story
def test_a_rank_killed_under_torchrun_costs_nothing(log: Path, tmp_path: Path) -> None:
    path = write_job(tmp_path / "job.yaml", log, tmp_path / "run", train__epochs=EPOCHS, train__checkpoint_every=20)
    group = start_group(path, 2)
    with ending(group):
        wait_for_checkpoints(tmp_path / "run", 2)
        os.kill(rank_pids(group)[1], signal.SIGKILL)
        ((status, output),) = finish([group])
    assert status == 0, output[-4000:]
    starts = [event for event in read_events(tmp_path / "run" / "events.jsonl") if event["event"] == "start"]
    assert [event["ranks"] for event in starts] == [2, 2] and starts[1]["step"] > 0
    assert_every_sample_once(load_job(path))


def test_evaluation_bad_lines_and_gradients_that_are_not_finite(tmp_path: Path) -> None:
    """All kinds of bad data, on two ranks: the run ends normally and every line is accounted for."""
    log = tmp_path / "log"
    make_log(log, 3_000)
    lines = (log / "part-00000.txt").read_text().splitlines()
    for number, (label, value) in enumerate([(0, "3e38"), (1, "3e38"), (0, "-3e38"), (1, "-3e38")], start=100):
        # One of them gets the worst possible prediction, with any weights.
        _, _, *rest = lines[number].split()
        lines[number] = " ".join([f"click:{label}", f"dense_feature:{value}", *rest])
    lines[200] = "not a sample"
    (log / "part-00000.txt").write_text("\n".join(lines) + "\n")
    path = write_job(tmp_path / "job.yaml", log, tmp_path / "run", data__valid={"path": str(log / "part-00001.txt")})
    job = train(path, 2)
    events = read_events(tmp_path / "run" / "events.jsonl")
    (refused,) = [event for event in events if event["event"] == "not_finite"]
    assert refused["refused"] == job.train.batch_size
    (data,) = [event for event in events if event["event"] == "data" and event["split"] == "train"]
    assert (data["rows"], data["bad_lines"]) == (2_999, 1)
    checkpoint = open_checkpoint(job.run_dir)
    assert (checkpoint.trainer["samples"], checkpoint.trainer["refused"]) == (2_999, job.train.batch_size)
    learned = Learner(job)
    learned.load(checkpoint)
    assert job.data.valid is not None
    expected = evaluate(learned, open_dataset(job.data.valid, job.samples), batch_size=512, quiet=True)
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert found["valid"]["auc"] == pytest.approx(expected["auc"], abs=1e-6)
    assert found["valid"]["samples"] == 1_500
    assert found["train"]["samples"] + found["train"]["invalid_scores"] == 2_999
    assert (tmp_path / "run" / "report.html").exists()
