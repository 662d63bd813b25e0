"""A coordinator of a small job with fake pservers and trainers, all in this process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.ps.fake_pserver import FakePserver

from elasticctr.data.chunks import Chunk, read_chunk
from elasticctr.errors import ElasticCTRError
from elasticctr.net.access import Tokens
from elasticctr.net.client import Peer
from elasticctr.ps.addresses import find_coordinator
from elasticctr.ps.coordinator.process import run_coordinator
from elasticctr.ps.coordinator_client import CoordinatorClient, pack_metrics
from elasticctr.ps.identity import build, job_identity
from elasticctr.ps.shape import JobShape
from elasticctr.train.job import Job
from elasticctr.train.metrics.metrics import Metrics

LINES = 3000


def find_url(run_dir: str) -> str:
    try:
        return find_coordinator(run_dir)
    except ElasticCTRError:
        return ""


def make_job(root: Path, **sections: Any) -> Job:
    """`LINES` samples in three files, small chunks; the user slot numbers the samples."""
    logs = root / "logs"
    if not logs.exists():
        logs.mkdir(parents=True)
        lines = [f"click:{i % 3 == 0:d} user:{i + 1}\n" for i in range(LINES)]
        for part in range(3):
            (logs / f"part-{part}").write_text("".join(lines[part * 1000 : (part + 1) * 1000]))
        (root / "valid").write_text("".join(lines[:500]))
    cluster = {"pservers": 2, "trainers": 2, "chunk_mib": 0.004, "lease_s": 20, "pserver_wait_s": 3}
    return Job.model_validate(
        {
            "run_dir": str(root / "run"),
            "schema": {"slots": [{"kind": "sparse", "name": "user"}]},
            "data": {"train": {"path": str(logs), "prefetch": 0}, **sections.pop("data", {})},
            "model": {"name": "lr"},
            "train": {"batch_size": 100, "log_every": 5, **sections.pop("train", {})},
            "cluster": cluster | {"coordinator_wait_s": 60} | sections.pop("cluster", {}),
            **sections,
        }
    )


class World:
    """The job's processes, as threads."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.servers: list[FakePserver] = []
        self.finished: bool | None = None
        self.error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._allowed = 1 << 30  # batches, of all trainers together
        self._begun: set[tuple[int, int]] = set()  # (chunk, batch); one that is done again counts once
        self._holding = threading.Lock()
        self._trainers: list[int] = []
        self._dismissed: set[int] = set()  # trainers told to stop
        self.applied: dict[int, list[dict[tuple[int, int], int]]] = {}

    def start(self, *, resume: bool = False, port: int = 0) -> str:
        listening = threading.Event()
        url: list[str] = []

        def tell(found: str) -> None:
            url.append(found)
            listening.set()

        def run() -> None:
            try:
                self.finished = run_coordinator(
                    self.job, host="127.0.0.1", port=port, tokens=Tokens(), resume=resume, on_listening=tell
                )
            except BaseException as e:
                self.error = e
            finally:
                listening.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert listening.wait(60)
        if not url:
            raise self.error or AssertionError("the coordinator did not start")
        self.url = url[0]
        return url[0]

    def client(self) -> CoordinatorClient:
        return CoordinatorClient(self.job.run_dir, timeout_s=60)

    def join(self, role: str, name: str, **more: Any) -> dict[str, Any]:
        identity = job_identity(self.job).text
        return self.client().join(role, name, build=build(), identity=identity, host="here", pid=1, **more)

    def add_pserver(self, shard: int, *, role: str = "pserver", name: str = "") -> FakePserver:
        """One that beats until it is closed."""
        shards = 0 if self.job.cluster is None else self.job.cluster.pservers
        fake = FakePserver(shard, shards)
        answer = self.join(role, name or f"{role}-{shard}", address=fake.address, shard=shard)
        fake.member = answer["id"]  # type: ignore[attr-defined]
        fake.is_silent = False  # type: ignore[attr-defined]
        self.servers.append(fake)
        self._spawn(lambda: self._beat(fake))
        return fake

    def add_roles(self) -> None:
        """Two pservers and two trainers."""
        for shard in range(2):
            self.add_pserver(shard)
        for name in ("a", "b"):
            self.add_trainer(name)

    def kill(self, fake: FakePserver, *, is_noticed: bool = True) -> None:
        """It is gone. `is_noticed`: trainers say that they cannot reach it, so nobody waits for its silence."""
        fake.is_silent = True  # type: ignore[attr-defined]
        fake.close()
        for trainer in self._trainers[:1] if is_noticed else ():
            self.client().report(trainer, "pserver_unreachable", str(fake.shard))

    def _beat(self, fake: Any) -> None:
        client = self.client()
        while not self._over.wait(0.1) and not fake.is_silent:
            try:
                fake.order = client.beat(fake.member, {"rows": 1, "standby": fake.standby, **fake.said})["order"]
                if fake.order == "stop":
                    client.leave(fake.member, "told to")
                if fake.order in ("stop", "rejoin"):
                    return
            except ElasticCTRError:
                continue

    def allow(self, batches: int = 1 << 30) -> None:
        """Trainers hold, beating, before the batch after so many; without a number they go on to the end."""
        self._allowed = batches

    def _may_train(self, member: int, batch: tuple[int, int]) -> bool:
        while True:
            with self._holding:
                if batch in self._begun or len(self._begun) < self._allowed:
                    self._begun.add(batch)
                    return True
            if self._over.wait(0.02) or member in self._dismissed:
                return False

    def add_trainer(self, name: str, *, dies_after: int | None = None) -> None:
        self._spawn(lambda: self._train(name, dies_after))

    def _train(self, name: str, dies_after: int | None) -> None:
        """Leases, 'pushes' to the fakes' cursors by the rules of the wire, reports."""
        client, batches_left = self.client(), dies_after
        me = self.join("trainer", name)["id"]
        self._trainers.append(me)
        beating = threading.Event()

        def beat() -> None:
            while not beating.wait(0.1) and not self._over.is_set():
                try:
                    if client.beat(me, {"samples_per_s": 1.0})["order"] == "stop":
                        self._dismissed.add(me)
                except ElasticCTRError:
                    continue

        self._spawn(beat)
        try:
            while not self._over.is_set():
                try:
                    answer = client.lease(me, [])
                    if answer["kind"] == "end":
                        client.leave(me, "done")
                        return
                    if answer["kind"] == "wait":
                        time.sleep(0.02)
                        continue
                    batches_left = self._work(client, me, answer, batches_left)
                    if batches_left is not None and batches_left <= 0:
                        return
                except ElasticCTRError:
                    time.sleep(0.05)
        finally:
            beating.set()

    def _work(self, client: CoordinatorClient, me: int, answer: dict[str, Any], left: int | None) -> int | None:
        chunk = Chunk.from_dict(answer["chunk"])
        is_training = answer["kind"] == "train"
        data = self.job.data.train if is_training else getattr(self.job.data, answer["split"])
        size = self.job.train.batch_size
        primaries = [fake for fake in self.servers if not getattr(fake, "is_silent", False)]
        first = min(fake.cursors.get(chunk.id, 0) for fake in primaries) if is_training else 0
        metrics = Metrics()
        samples, number = first * size, first
        body: dict[str, Any] = {"chunk": str(chunk.id), "lease": answer["lease"]}
        with read_chunk(chunk, self.job.samples, data, size, first_batch=first) as batches:
            for batch in batches:
                if is_training and not self._may_train(me, (chunk.id, number)):
                    return left
                for fake in primaries if is_training else []:
                    if fake.cursors.get(chunk.id, 0) == number:
                        fake.cursors[chunk.id] = number + 1
                number += 1
                samples += len(batch)
                scores = np.where(batch.labels[:, 0] > 0, 1.0, -1.0) + (batch.slot(0)[0] % 5) * 0.3
                metrics.update(scores.astype(np.float32), batch.labels[:, 0], batch.weights)
                if left is not None:
                    left -= 1
                    if left <= 0:
                        return left
        stats = batches.stats
        body |= {"batches": number, "samples": stats.samples, "lines": stats.lines, "bad": stats.bad}
        body |= {"examples": list(stats.examples), "loss_sum": 0.5 * samples}
        client.done(me, {**body, "metrics": pack_metrics(metrics.state())})
        return left

    def status(self) -> dict[str, Any]:
        return self.client().status()

    def wait_for(self, is_so: Any, timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < deadline, self.error or "it did not happen in time"
            time.sleep(0.02)

    def stop(self) -> None:
        with Peer(self.url) as peer:
            peer.post("/v1/stop", {})

    def result(self, timeout_s: float = 180.0) -> bool:
        assert self._thread is not None
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the coordinator did not end"
        if self.error is not None:
            raise self.error
        assert self.finished is not None
        return self.finished

    def _spawn(self, work: Any) -> None:
        def run() -> None:
            with contextlib.suppress(ElasticCTRError):
                work()

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(5)
        for fake in self.servers:
            fake.close()


@pytest.fixture
def world_class() -> type[World]:
    """What `world` makes; tests/process has another."""
    return World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, world_class: type[World]) -> Iterator[Any]:
    """Makes worlds; everything they started has ended afterwards."""
    shape = JobShape((), 0, {"schema": "s", "model": "lr", "options": {}})
    monkeypatch.setattr("elasticctr.ps.coordinator.process.shape_of", lambda job: shape)
    monkeypatch.setattr("elasticctr.ps.coordinator.claim.SILENT_S", 60.0)  # a busy machine is no dead coordinator
    made: list[World] = []

    def make(job: Job) -> World:
        made.append(world_class(job))
        return made[-1]

    yield make
    for one in made:
        one.close()
