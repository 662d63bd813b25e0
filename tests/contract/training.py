"""Small jobs for the conformance suite of strategies: samples with a hidden model, pservers in this process, trainers
as threads, and one process that learns from the same samples."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.chunks import Chunk
from elasticctr.ps.coordinator.pserver_client import ControlClient
from elasticctr.ps.identity import build, job_identity
from elasticctr.ps.pserver.pserver import PServer, PServerOptions
from elasticctr.ps.shape import measure
from elasticctr.ps.trainer.client import PsClient
from elasticctr.ps.trainer.leases import ChunkLease, LeasedBatch
from elasticctr.ps.trainer.remote import Failover, NoFailover, Remote
from elasticctr.ps.trainer.strategies.choice import make_strategy
from elasticctr.ps.trainer.strategies.strategy import Outcome, Strategy
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.metrics.metrics import Metrics
from elasticctr.train.reading import PreparedBatch

SLOTS = [
    {"name": "user", "values": "string"},
    {"name": "tags", "values": "string", "pooling": "mean", "max_values": 4},
    {"name": "ad", "values": "string", "table": "ads"},
    {"kind": "dense", "name": "x", "dim": 2},
]
TOKEN = "secret-of-this-test"


def make_job(tmp_path: Path, strategy: str, *, cluster: dict[str, Any] | None = None, **more: Any) -> Job:
    """`strategy`: of the job; "hybrid apart" with that setting of it."""
    strategy, _, step_rows = strategy.partition(" ")
    if step_rows:
        cluster = {"step_rows": step_rows, **(cluster or {})}
    settings: dict[str, Any] = {
        "run_dir": str(tmp_path),  # within which pservers save and load
        "schema": {"slots": SLOTS},
        "data": {"train": "unused"},
        "model": {"name": "deepfm", "dim": 4, "hidden": [8, 4]},
        "train": {"threads": 1, "seed": 5},
        "cluster": {"strategy": strategy, **(cluster or {})},
    }
    return Job.model_validate(settings | more)


class Samples:
    """Batches of a job. Labels follow a hidden linear model of the values, so that there is something to learn."""

    def __init__(self, job: Job, seed: int = 0, vocabulary: int = 60) -> None:
        self._schema = job.samples
        self._random = np.random.default_rng(seed)
        hidden = np.random.default_rng(99)  # the same for every seed
        self._vocabulary = vocabulary
        self._weights = [hidden.normal(scale=1.2, size=vocabulary) for _ in range(3)]
        self._dense = hidden.normal(size=2)

    def batch(self, size: int) -> Batch:
        random = self._random
        users = random.integers(0, self._vocabulary, (size, 1))
        ads = random.integers(0, self._vocabulary, (size, 1))
        lengths = random.integers(0, 4, size)
        tags = [random.integers(0, self._vocabulary, n) for n in lengths]
        dense = random.normal(size=(size, 2))
        score = self._weights[0][users[:, 0]] + self._weights[2][ads[:, 0]] + dense @ self._dense
        score += np.array([self._weights[1][t].mean() if len(t) else 0.0 for t in tags])
        clicks = random.random(size) < 1 / (1 + np.exp(-score))
        counts = np.concatenate([np.ones(size, int), lengths, np.ones(size, int)])
        values = np.concatenate([users[:, 0], 1000 + np.concatenate(tags), 2000 + ads[:, 0]]).astype(np.uint64)
        return Batch(
            schema=self._schema,
            labels=clicks.astype(np.float32)[:, None],
            dense=dense.astype(np.float32),
            values=values * np.uint64(0x9E3779B97F4A7C15),  # over all shards, and above 2^63
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            weights=np.ones(size, dtype=np.float32),
            shows=np.ones(size, dtype=np.float32),
        )


def join_batches(batches: Sequence[Batch]) -> Batch:
    """All samples as one batch."""
    slots = len(batches[0].schema.sparse)
    columns = [[batch.slot(s) for batch in batches] for s in range(slots)]
    values = np.concatenate([values for column in columns for values, _ in column])
    counts = np.concatenate([np.diff(offsets) for column in columns for _, offsets in column])
    return Batch(
        schema=batches[0].schema,
        labels=np.concatenate([b.labels for b in batches]),
        dense=np.concatenate([b.dense for b in batches]),
        values=values,
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        weights=np.concatenate([b.weights for b in batches]),
        shows=np.concatenate([b.shows for b in batches]),
    )


def train_alone(job: Job, batches: Sequence[Batch]) -> Learner:
    learner = Learner(job)
    for batch in batches:
        learner.step(PreparedBatch(batch, learner.look_up(batch), {}))
    return learner


def make_lease(number: int) -> ChunkLease:
    return ChunkLease("train", Chunk("unused", "file", number=number), "")


@dataclass
class Cluster:
    """The pservers of a job, in this process."""

    job: Job
    count: int
    addresses: list[str] = field(default_factory=list)

    @property
    def control(self) -> ControlClient:
        identity = job_identity(self.job)
        about = {"role": "coordinator", "build": build(), "identity": identity.text, "strategy": _strategy(self.job)}
        return ControlClient(identity.number, 1, json.dumps(about), TOKEN)

    def connect(self, trainer: int, addresses: Sequence[str] | None = None) -> PsClient:
        identity, learner = job_identity(self.job), Learner(self.job)
        settings = self.job.cluster
        assert settings is not None
        about = {
            "role": "trainer",
            "id": trainer,
            "build": build(),
            "identity": identity.text,
            "strategy": settings.strategy,
        }
        return PsClient(
            addresses or self.addresses,
            job=identity.number,
            attach=about,
            tables=[plan.settings for plan in learner.plan.tables],
            dense_floats=learner.dense_floats,
            dense_on_first=self.job.dense.clip_norm is not None,
            trainer=trainer,
            token=TOKEN,
            rows_as=settings.rows_as,
            gradients_as=settings.gradients_as,
            dense_gradients_as=settings.dense_encoding,
            timeout_s=100.0,
        )

    def set_group(self, members: Sequence[int]) -> None:
        for address in self.addresses:
            self.control.set_group(address, members)

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        for address in self.addresses:
            self.control.control(address, {"op": "save", "directory": str(directory)}, 30.0)

    def load(self, directory: Path | None) -> None:
        for address in self.addresses:
            self.control.control(
                address, {"op": "load", "directory": None if directory is None else str(directory)}, 30.0
            )

    def cursors(self, chunks: Sequence[int]) -> list[list[int]]:
        return self.connect(10**6).cursors(list(chunks))

    def collect(self, tmp_path: Path) -> Learner:
        """What the pservers learned, as a learner of one process."""
        learner = Learner(self.job)
        directory = tmp_path / f"collected-{len(list(tmp_path.iterdir()))}"
        self.save(directory)
        for table in learner.sparse.tables:
            for shard in range(self.count):
                table.load_part(directory / f"{table.settings.name}.{shard}.table")
        client = self.connect(10**6)
        Remote(learner, client, NoFailover()).pull_dense()
        return learner


@contextmanager
def serving(job: Job, count: int, *, load: Path | None = None) -> Iterator[Cluster]:
    """Pservers, ready, empty or with what a directory holds."""
    shape = measure(job)
    with ExitStack() as stack:
        cluster = Cluster(job, count)
        for shard in range(count):
            server = PServer(PServerOptions(job=job, token=TOKEN), shape, shard, count, 0)
            server.start()
            stack.callback(server.stop, 1.0)
            cluster.addresses.append(server.address)
        cluster.load(load)
        yield cluster


class Trainer:
    """One trainer of a cluster: its own learner, client and strategy."""

    def __init__(
        self,
        cluster: Cluster,
        number: int,
        *,
        failover: Failover | None = None,
        addresses: Sequence[str] | None = None,
    ) -> None:
        settings = cluster.job.cluster
        assert settings is not None
        self.number = number
        self.learner = Learner(cluster.job)
        self.client = cluster.connect(number, addresses)
        self.remote = Remote(self.learner, self.client, failover or NoFailover())
        self.client.set_dense(self.learner.flat_dense().numpy())
        self.remote.pull_dense()
        self.strategy: Strategy = make_strategy(self.remote, settings, lambda: 1.0)
        self.outcomes: list[Outcome] = []

    def train(self, number: int, batches: Sequence[Batch]) -> None:
        """A whole chunk, from the smallest cursor on, one batch prepared ahead."""
        lease = make_lease(number)
        lease.cursors = [by_shard[0] for by_shard in self.client.cursors([lease.id])]
        self.client.set_cursors(lease.id, lease.cursors)
        self._step_all(lease, batches, lease.first)

    def train_from(self, number: int, batches: Sequence[Batch], first: int) -> None:
        """Trains as if it held the chunk, without asking the coordinator."""
        self._step_all(make_lease(number), batches, first)

    def _step_all(self, lease: ChunkLease, batches: Sequence[Batch], first: int) -> None:
        ahead = None
        for place in range(first, len(batches)):
            batch = batches[place]
            prepared = self.strategy.prepare(
                LeasedBatch(lease, place, PreparedBatch(batch, self.learner.look_up(batch), {}))
            )
            if ahead is not None:
                self.outcomes.append(self.strategy.step(ahead))
            ahead = prepared
        if ahead is not None:
            self.outcomes.append(self.strategy.step(ahead))
        self.strategy.flush()

    def close(self) -> None:
        self.strategy.close()


def train_together(trainers: Sequence[Trainer], work: Sequence[Sequence[tuple[int, Sequence[Batch]]]]) -> None:
    """Every trainer its chunks, side by side; those who are done early stay members of the group."""
    left = threading.Semaphore(0)
    failures: list[BaseException] = []
    is_over = threading.Event()

    def run(trainer: Trainer, chunks: Sequence[tuple[int, Sequence[Batch]]]) -> None:
        try:
            for number, batches in chunks:
                trainer.train(number, batches)
            left.release()
            while not is_over.is_set():
                trainer.strategy.idle(0.02)
                is_over.wait(0.001)
        except BaseException as e:
            failures.append(e)
            left.release()

    threads = [threading.Thread(target=run, args=pair) for pair in zip(trainers, work, strict=True)]
    for thread in threads:
        thread.start()
    for _ in threads:
        left.acquire()
    is_over.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def measure_auc(learner: Learner, batch: Batch) -> float:
    metrics = Metrics()
    logits = learner.predict(PreparedBatch(batch, learner.look_up(batch), {}))
    metrics.update(logits, batch.labels[:, 0])
    auc = metrics.compute().auc
    assert auc is not None
    return auc


def rows_of(learner: Learner) -> dict[str, dict[int, NDArray[np.float32]]]:
    """All rows by table and feasign: weights, then show and click."""
    found: dict[str, dict[int, NDArray[np.float32]]] = {}
    for table in learner.sparse.tables:
        rows = found.setdefault(table.settings.name, {})
        for part in table.rows():
            for i, feasign in enumerate(part.feasigns.tolist()):
                rows[feasign] = np.concatenate([part.weights[i], [part.shows[i], part.clicks[i]]])
    return found


def difference(one: Learner, other: Learner) -> float:
    """The largest difference of any weight, dense parameter or counter. Infinite if they have different rows."""
    mine, theirs = rows_of(one), rows_of(other)
    largest = float((one.flat_dense() - other.flat_dense()).abs().max())
    for table, rows in mine.items():
        if rows.keys() != theirs[table].keys():
            return float("inf")
        largest = max(largest, *(float(np.abs(row - theirs[table][f]).max()) for f, row in rows.items()))
    return largest


def count_shows(learner: Learner) -> dict[str, float]:
    """How many occurrences the rows of each table have counted."""
    return {
        table.settings.name: float(sum(part.shows.sum(dtype=np.float64) for part in table.rows()))
        for table in learner.sparse.tables
    }


def _strategy(job: Job) -> str:
    assert job.cluster is not None
    return job.cluster.strategy
