"""One suite for every strategy with pservers: what it equals, that every batch counts once, that it learns, and that
connections, checkpoints and bad gradients change nothing of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cluster.proxy import Proxy
from tests.contract.training import (
    Cluster,
    Samples,
    Trainer,
    count_shows,
    difference,
    join_batches,
    make_job,
    measure_auc,
    serving,
    train_alone,
    train_together,
)

from elasticctr.data.batch import Batch
from elasticctr.errors import ConfigError
from elasticctr.ps.trainer.client import CursorError

STRATEGIES = ["sync", "async", "half_async", "geo", "hybrid"]
VARIANTS = [*STRATEGIES, "hybrid apart"]
BATCH = 32
GEO = {"every": 4}


def make_trainers(cluster: Cluster, count: int) -> list[Trainer]:
    trainers = [Trainer(cluster, number) for number in range(1, count + 1)]
    cluster.set_group([trainer.number for trainer in trainers])
    return trainers


def train_in_step(
    tmp_path: Path, trainers: int, pservers: int, steps: int, strategy: str = "sync", **more: Any
) -> float:
    """How far sync is from one process on the union batches. Batches are uneven, and the last chunks too."""
    job = make_job(tmp_path, strategy, **more)
    samples = Samples(job)
    sizes = np.random.default_rng(1).integers(BATCH // 2, BATCH + 1, (trainers, steps))
    work = [[samples.batch(int(n)) for n in row] for row in sizes]
    with serving(job, pservers) as cluster:
        team = make_trainers(cluster, trainers)
        train_together(team, [[(i, batches)] for i, batches in enumerate(work)])
        found = cluster.collect(tmp_path)
    return difference(found, train_alone(job, [join_batches(list(step)) for step in zip(*work, strict=True)]))


def test_sync_is_one_process_on_the_union_of_the_batches(tmp_path: Path) -> None:
    assert train_in_step(tmp_path, 2, 2, 200) <= 1e-5


def test_sync_is_one_process_where_a_model_has_losses_of_its_own(tmp_path: Path) -> None:
    model = {"name": "finalnet", "dim": 4, "block1_hidden": [8, 4], "block2_hidden": [6], "distillation": 2.0}
    assert train_in_step(tmp_path, 2, 2, 50, model=model) <= 1e-5


def test_hybrid_that_fetches_nothing_ahead_is_sync(tmp_path: Path) -> None:
    assert train_in_step(tmp_path, 2, 2, 50, "hybrid", cluster={"prefetch": False}) <= 1e-5


def test_sync_is_one_process_where_rows_catch_up(tmp_path: Path) -> None:
    sparse = {"optimizer": {"name": "adam", "l2": 0.05, "catch_up": 20}}
    assert train_in_step(tmp_path, 2, 2, 50, sparse=sparse) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("pservers", [1, 2, 3])
@pytest.mark.parametrize("trainers", [1, 2, 3])
def test_sync_of_any_number_is_one_process(tmp_path: Path, trainers: int, pservers: int) -> None:
    assert train_in_step(tmp_path, trainers, pservers, 200) <= 1e-5


OPTIMIZERS: list[dict[str, Any]] = [
    {"dense": {"optimizer": "adam", "clip_norm": 0.05}},
    {"dense": {"optimizer": "adamw", "weight_decay": 0.1}},
    {"dense": {"optimizer": "adagrad", "learning_rate": 0.02, "weight_decay": 0.01}},
    {"dense": {"optimizer": "sgd", "learning_rate": 0.1, "clip_norm": 0.2}},
    {"sparse": {"optimizer": {"name": "ftrl", "l1": 0.001, "l2": 0.1}}},
    {"sparse": {"optimizer": {"name": "adagrad", "l2": 0.01, "gradient_clip": 0.02}}},
    {"sparse": {"optimizer": {"name": "adam", "l2": 0.01, "weight_bound": 0.05}, "linear_optimizer": {"name": "ftrl"}}},
    {"loss": {"embedding_l2": 0.01}},
]


@pytest.mark.slow
@pytest.mark.parametrize("more", OPTIMIZERS, ids=str)
def test_sync_is_one_process_by_every_optimizer(tmp_path: Path, more: dict[str, Any]) -> None:
    assert train_in_step(tmp_path, 2, 2, 200, **more) <= 1e-5


@pytest.mark.parametrize(
    ("strategy", "cluster", "joined"),
    [
        ("async", {"staleness": 0}, 1),
        ("hybrid", {"prefetch": False}, 1),
        ("hybrid apart", {"prefetch": False}, 1),
        ("half_async", {"prefetch": False, "merge": 3, "queue": 3}, 3),
        ("geo", {"trainers": 1, "every": 5}, 1),
    ],
)
def test_one_trainer_is_one_process(tmp_path: Path, strategy: str, cluster: dict[str, Any], joined: int) -> None:
    """With one trainer every strategy equals one process; half_async on batches as large as it merges."""
    job = make_job(tmp_path, strategy, cluster=cluster)
    samples = Samples(job)
    chunks = [[samples.batch(BATCH) for _ in range(30)] for _ in range(2)]
    with serving(job, 2) as servers:
        (trainer,) = make_trainers(servers, 1)
        for number, batches in enumerate(chunks):
            trainer.train(number, batches)
        trainer.close()
        found = servers.collect(tmp_path)
    batches = [batch for chunk in chunks for batch in chunk]
    union = [join_batches(batches[i : i + joined]) for i in range(0, len(batches), joined)]
    assert difference(found, train_alone(job, union)) <= 1e-5


def spread(samples: Samples, trainers: int, chunks: int, batches: int) -> list[list[tuple[int, list[Batch]]]]:
    """Chunks of uneven length, dealt to trainers in turn."""
    lengths = np.random.default_rng(7).integers(max(batches // 2, 1), batches + 1, chunks)
    made = [(c, [samples.batch(BATCH if b < n - 1 else 5) for b in range(n)]) for c, n in enumerate(lengths.tolist())]
    return [made[t::trainers] for t in range(trainers)]


def check_once(cluster: Cluster, tmp_path: Path, work: list[list[tuple[int, list[Batch]]]]) -> Any:
    """Every pserver has every batch of every chunk, and rows have counted every occurrence once."""
    chunks = sorted((chunk, len(batches)) for part in work for chunk, batches in part)
    for by_shard in cluster.cursors([chunk for chunk, _ in chunks]):
        assert by_shard == [length for _, length in chunks]
    found = cluster.collect(tmp_path)
    all_samples = join_batches([batch for part in work for _, batches in part for batch in batches])
    expected = {"main": float(sum(len(all_samples.slot(s)[0]) for s in (0, 1))), "ads": float(len(all_samples))}
    assert count_shows(found) == expected
    return found


FAST: dict[str, Any] = {
    "sparse": {"optimizer": {"name": "adagrad", "learning_rate": 0.1}},
    "dense": {"learning_rate": 0.01},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_batch_counts_once_and_is_learned_from(tmp_path: Path, strategy: str) -> None:
    job = make_job(tmp_path, strategy, cluster={"trainers": 2, **GEO}, **FAST)
    samples = Samples(job)
    work = spread(samples, 2, 6, 40)
    with serving(job, 2) as cluster:
        team = make_trainers(cluster, 2)
        train_together(team, work)
        for trainer in team:
            trainer.close()
        found = check_once(cluster, tmp_path, work)
    held_out = Samples(job, seed=1).batch(3000)
    alone = train_alone(job, [batch for part in work for _, batches in part for batch in batches])
    best, got = measure_auc(alone, held_out), measure_auc(found, held_out)
    assert best > 0.75
    assert got > 0.5 + 0.6 * (best - 0.5)  # most of what there is to learn; benchmarks/strategies.py has the figures


@pytest.mark.parametrize("encoding", ["fp16", "int8"])
@pytest.mark.parametrize("strategy", ["async", pytest.param("sync", marks=pytest.mark.slow)])
def test_short_encodings_learn_as_well(tmp_path: Path, strategy: str, encoding: str) -> None:
    job = make_job(tmp_path, strategy, cluster={"rows_as": encoding, "gradients_as": encoding}, **FAST)
    work = spread(Samples(job), 1, 4, 60)
    with serving(job, 2) as cluster:
        (trainer,) = make_trainers(cluster, 1)
        train_together([trainer], work)
        found = check_once(cluster, tmp_path, work)
        sent = trainer.client.stats()["sent_bytes"] + trainer.client.stats()["received_bytes"]
    exact = make_job(tmp_path, strategy, **FAST)
    with serving(exact, 2) as cluster:
        (trainer,) = make_trainers(cluster, 1)
        train_together([trainer], work)
        reference = cluster.collect(tmp_path)
        assert sent < trainer.client.stats()["sent_bytes"] + trainer.client.stats()["received_bytes"]
    held_out = Samples(job, seed=1).batch(3000)
    assert abs(measure_auc(found, held_out) - measure_auc(reference, held_out)) < 0.02


@pytest.mark.parametrize("strategy", VARIANTS)
def test_a_lost_connection_loses_no_batch(tmp_path: Path, strategy: str) -> None:
    job = make_job(tmp_path, strategy, cluster={"trainers": 2, **GEO}, **FAST)
    work = spread(Samples(job), 2, 6, 40)
    with (
        serving(job, 2) as cluster,
        Proxy(_port(cluster.addresses[0])) as first,
        Proxy(_port(cluster.addresses[1])) as second,
    ):
        addresses = [f"127.0.0.1:{proxy.port}" for proxy in (first, second)]
        team = [Trainer(cluster, number, addresses=addresses) for number in (1, 2)]
        cluster.set_group([1, 2])
        is_over = threading.Event()

        def harm() -> None:
            # Ever more rarely: on a busy machine making the connections again may take longer than a pause.
            pause_s = 0.03
            while not is_over.wait(pause_s):
                first.cut()
                second.cut()
                pause_s *= 1.2

        harming = threading.Thread(target=harm)
        harming.start()
        try:
            train_together(team, work)
        finally:
            is_over.set()
            harming.join()
        check_once(cluster, tmp_path, work)
        assert sum(trainer.client.stats()["reconnects"] for trainer in team) > 0


@pytest.mark.parametrize("strategy", VARIANTS)
def test_a_chunk_is_taken_over_where_its_trainer_died(tmp_path: Path, strategy: str) -> None:
    job = make_job(tmp_path, strategy, cluster={"trainers": 2, **GEO}, **FAST)
    samples = Samples(job)
    batches = [samples.batch(BATCH) for _ in range(30)]
    with serving(job, 2) as cluster:
        (first,) = make_trainers(cluster, 1)
        first.train(0, batches[:13])
        second = Trainer(cluster, 2)
        cluster.set_group([2])
        second.train(0, batches)
        assert len(second.outcomes) == 17
        # The first wakes up and goes on where it was: all of it was applied before.
        first.train_from(0, batches, 13)
        assert first.client.stats()["applied_before"] > 0
        check_once(cluster, tmp_path, [[(0, batches)]])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_gap_is_refused_and_the_cursors_tell_where_to_go_on(tmp_path: Path, strategy: str) -> None:
    job = make_job(tmp_path, strategy, cluster={"trainers": 1, **GEO}, **FAST)
    samples = Samples(job)
    batches = [samples.batch(BATCH) for _ in range(12)]
    with serving(job, 2) as cluster:
        (trainer,) = make_trainers(cluster, 1)
        with pytest.raises(CursorError):
            trainer.train_from(0, batches, 5)
        trainer.strategy.drop()
        trainer.train(0, batches)
        check_once(cluster, tmp_path, [[(0, batches)]])


@pytest.mark.parametrize("strategy", VARIANTS)
def test_a_job_goes_on_from_its_parts_with_other_pservers(tmp_path: Path, strategy: str) -> None:
    job = make_job(tmp_path, strategy, cluster={"trainers": 1, **GEO}, **FAST)
    samples = Samples(job)
    work = [[(c, [samples.batch(BATCH) for _ in range(20)]) for c in range(3)]]
    with serving(job, 2) as cluster:
        (trainer,) = make_trainers(cluster, 1)
        trainer.train(0, work[0][0][1])
        trainer.train(1, work[0][1][1][:9])
        cluster.save(tmp_path / "saved")
        trainer.train(1, work[0][1][1])  # lost with the pservers
    with serving(job, 3, load=tmp_path / "saved") as cluster:
        (trainer,) = make_trainers(cluster, 1)
        train_together([trainer], work)
        assert len(trainer.outcomes) == 20 + 11
        check_once(cluster, tmp_path, work)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_that_are_not_finite_are_left_out(tmp_path: Path, strategy: str) -> None:
    job = make_job(tmp_path, strategy, cluster={"trainers": 1, "merge": 2, "queue": 2, **GEO}, **FAST)
    samples = Samples(job)
    batches = [samples.batch(BATCH) for _ in range(12)]
    for place in (4, 5, 9):
        batches[place].dense[3, 0] = np.nan
    with serving(job, 2) as cluster:
        (trainer,) = make_trainers(cluster, 1)
        trainer.train(0, batches)
        assert [i for i, outcome in enumerate(trainer.outcomes) if not outcome.is_finite] == [4, 5, 9]
        for by_shard in cluster.cursors([0]):
            assert by_shard == [12]
        found = cluster.collect(tmp_path)
    assert bool(found.flat_dense().isfinite().all())
    for table in found.sparse.tables:
        assert all(np.isfinite(part.weights).all() for part in table.rows())


def test_an_idle_member_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """Two members, one without work: steps continue with the other's batches alone."""
    job = make_job(tmp_path, "sync")
    samples = Samples(job)
    batches = [samples.batch(BATCH) for _ in range(40)]
    with serving(job, 2) as cluster:
        team = make_trainers(cluster, 2)
        began = time.monotonic()
        train_together(team, [[(0, batches)], []])
        assert time.monotonic() - began < 60
        found = cluster.collect(tmp_path)
    assert difference(found, train_alone(job, batches)) <= 1e-5


def test_geo_refuses_what_cannot_be_exchanged(tmp_path: Path) -> None:
    with pytest.raises((ConfigError, ValueError), match="ftrl"):
        make_job(tmp_path, "geo", sparse={"optimizer": {"name": "ftrl"}})
    with pytest.raises((ConfigError, ValueError), match="admission"):
        make_job(tmp_path, "geo", sparse={"admission": {"count": 2}})


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
