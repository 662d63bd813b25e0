"""The trainer role: leases work, learns from it by the job's strategy, reports, and survives the failure of others.

All it owns is its leases. It may be killed at any moment: the trainer that takes over its chunk continues at the
cursors.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from elasticctr.errors import ConfigError, DeadlineExceeded, ElasticCTRError, Unavailable
from elasticctr.models.model import Model
from elasticctr.ps.addresses import find_nearest
from elasticctr.ps.coordinator_client import CoordinatorClient, patiently
from elasticctr.ps.identity import build, job_identity
from elasticctr.ps.trainer.client import CursorError, EraError, PsClient
from elasticctr.ps.trainer.failover import CoordinatedFailover, Interrupted
from elasticctr.ps.trainer.leases import (
    ChunkEnd,
    ChunkLease,
    End,
    LeasedBatch,
    NoWork,
    Unreadable,
    WorkSource,
    WorkStream,
)
from elasticctr.ps.trainer.remote import Pulling, Remote
from elasticctr.ps.trainer.reporting import Reporter
from elasticctr.ps.trainer.strategies.choice import make_strategy
from elasticctr.ps.trainer.strategies.strategy import Prepared
from elasticctr.ps.trainer.tally import TrainerTally
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.metrics.metrics import group_ids
from elasticctr.train.vocabulary import find_vocabulary

T = TypeVar("T")

_IDLE_S = 0.05
_LEAVE_S = 10.0
_PSERVER_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class TrainerSummary:
    """Figures of this trainer."""

    samples: int
    batches: int
    chunks: int
    seconds: float
    wire_bytes: int  # sent and received
    reason: str


class TrainerRole:
    def __init__(
        self,
        job: Job,
        coordinator: str,
        *,
        token: str = "",
        name: str | None = None,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """`coordinator`: its URL or the run directory. `is_interrupted` is asked between batches: leave in order."""
        if job.cluster is None:
            raise ConfigError("the job has no 'cluster' section; a trainer role is part of one that has")
        self._job = job
        self._settings = job.cluster
        self._token = token
        self.name = name or f"trainer-{socket.gethostname()}-{os.getpid()}"
        self._is_interrupted = is_interrupted
        self._learner = Learner(job)
        _check_model(self._learner.model)
        if (vocabulary := find_vocabulary(job, resume=True)) is not None:
            self._learner.plan.use(vocabulary)
        self._initial = self._learner.flat_dense().numpy()
        self._coordinator = CoordinatorClient(coordinator, token, tls=job.cluster.tls)
        self._identity = job_identity(job)

    def run(self) -> TrainerSummary:
        """Until there is no more work, or the trainer has to stop."""
        began = time.monotonic()
        wait_s = self._settings.coordinator_wait_s
        joined = patiently(self._join, wait_s, self._is_interrupted)
        self._id = int(joined["id"])
        if joined.get("order") == "stop":
            self._coordinator.close()
            return TrainerSummary(0, 0, 0, time.monotonic() - began, 0, "the job is ending")
        self._tally = TrainerTally(self._learner, self._job.train.batch_size)
        self._client: PsClient | None = None
        self._is_member = False  # of the group, if the strategy has one: as the coordinator says, or from a lease on
        self._reporter = Reporter(self._coordinator, self._id, self._stats, wait_s=wait_s)
        reason = "failed"
        try:
            self._failover = CoordinatedFailover(
                self._coordinator,
                self._reporter,
                wait_s=wait_s,
                is_ending=lambda: self._is_ending,
                find_nearest=self._find_nearest,
            )
            self._client = self._undisturbed(self._connect)
            self._failover.client = self._client
            self._reporter.on_beat = self._failover.follow
            self._remote = Remote(self._learner, self._client, self._failover)
            self._undisturbed(self._offer_dense)
            self._strategy = make_strategy(self._remote, self._settings, self._rate_scale)
            try:
                reason = self._work()
            finally:
                self._strategy.close()
        except ElasticCTRError as e:
            reason = f"{e.code}: {e}"
            if not (self._is_ending and isinstance(e, (Unavailable, DeadlineExceeded))):
                raise
        finally:
            self._leave(reason)
        tally, stats = self._tally, self._stats()
        wire = stats.get("sent_bytes", 0) + stats.get("received_bytes", 0)
        return TrainerSummary(
            tally.all_samples, tally.all_batches, tally.chunks, time.monotonic() - began, wire, reason
        )

    def _join(self) -> dict[str, Any]:
        return self._coordinator.join(
            "trainer",
            self.name,
            build=build(),
            identity=self._identity.text,
            host=socket.gethostname(),
            pid=os.getpid(),
        )

    def _undisturbed(self, call: Callable[[], T]) -> T:
        """The result of a call before the first lease, when there is nothing yet that a reload could make void."""
        while True:
            try:
                return call()
            except (Interrupted, EraError) as e:
                self._enter_era(e)

    def _connect(self) -> PsClient:
        """Waits for every pserver and attaches to it."""
        learner, settings = self._learner, self._settings

        def attach() -> PsClient:
            self._failover.check()
            shards = sorted(self._coordinator.pservers(), key=lambda s: s.shard)
            addresses = [self._find_nearest(s.address) for s in shards if s.address is not None and s.is_ready]
            if not shards or len(addresses) < len(shards):
                raise Unavailable(f"{len(addresses)} of {len(shards)} pservers are ready", retry_after_s=0.2)
            return PsClient(
                addresses,
                job=self._identity.number,
                attach={
                    "role": "trainer",
                    "id": self._id,
                    "build": build(),
                    "identity": self._identity.text,
                    "strategy": settings.strategy,
                },
                tables=[plan.settings for plan in learner.plan.tables],
                dense_floats=learner.dense_floats,
                dense_on_first=self._job.dense.clip_norm is not None,
                trainer=self._id,
                incarnation=self._coordinator.incarnation,
                era=self._coordinator.era,
                token=self._token,
                rows_as=settings.rows_as,
                gradients_as=settings.gradients_as,
                dense_gradients_as=settings.dense_encoding,
                timeout_s=_PSERVER_TIMEOUT_S,
                tls=settings.tls,
            )

        return patiently(attach, settings.coordinator_wait_s, lambda: self._is_ending)

    def _find_nearest(self, address: str) -> str:
        return find_nearest(address, self._identity.number)

    def _offer_dense(self) -> None:
        """Initial parameters, the same of every trainer, become those of pservers without any; then takes theirs."""
        assert self._client is not None
        client = self._client
        self._failover.retry(lambda: client.set_dense(self._initial))
        self._remote.pull_dense()

    @property
    def _is_ending(self) -> bool:
        return self._reporter.is_stop or self._is_interrupted()

    def _rate_scale(self) -> float:
        warmup = self._job.train.warmup_steps
        scale = self._reporter.rate_scale
        return scale * min(1.0, (self._remote.step + 1) / warmup) if warmup else scale

    def _work(self) -> str:
        held: list[ChunkLease] = []
        while True:
            stream = WorkStream(self._source(held))
            void: Interrupted | EraError | None = None
            try:
                return self._follow(stream)
            except (Interrupted, EraError) as e:
                void = e
            except CursorError:
                held = stream.unfinished  # another trainer had one of them and was faster: the cursors tell
            except Unreadable as e:
                self._reporter.report("data", str(e))
                raise e.error from None
            finally:
                stream.close()
            held = self._start_over(held, void)

    def _start_over(self, held: list[ChunkLease], void: Interrupted | EraError | None) -> list[ChunkLease]:
        """Forgets all that is not applied; where pservers went back, the dense parameters and leases too."""
        while True:
            try:
                self._strategy.drop()
                self._tally.forget()
                if void is None:
                    return held
                self._enter_era(void)
                self._offer_dense()
                return []
            except (Interrupted, EraError) as e:
                void = e

    def _enter_era(self, reason: Interrupted | EraError) -> None:
        """Pservers went back: reports of the time before are void, and what follows is of the newest era heard of."""
        self._reporter.forget()
        self._is_member = False  # until pservers know the group again, and the coordinator says so
        era = max(self._coordinator.era, reason.era if isinstance(reason, EraError) else 0)
        if self._client is not None:
            self._client.set_era(era)

    def _source(self, held: list[ChunkLease]) -> WorkSource:
        return WorkSource(self._job, self._lease, self._cursors, self._learner.look_up, held)

    def _lease(self, have: list[str]) -> dict[str, Any]:
        answer = patiently(
            lambda: self._coordinator.lease(self._id, have), self._settings.coordinator_wait_s, lambda: self._is_ending
        )
        if have or answer.get("order") != "reload":
            self._reporter.take_answer(answer)
        self._is_member = bool(answer.get("in_group", self._is_member))
        return answer

    def _cursors(self, chunk: int) -> list[int]:
        client = self._remote.client
        found = self._failover.retry(lambda: [by_shard[0] for by_shard in client.cursors([chunk])])
        client.set_cursors(chunk, found)
        return found

    def _follow(self, stream: WorkStream) -> str:
        ahead: Prepared | None = None
        is_idle = False
        while True:
            self._failover.check()
            if self._is_ending:
                self._end_early(stream, ahead)
                return "told to stop" if self._reporter.is_stop else "interrupted"
            event = stream.get(0.0 if ahead is not None else _IDLE_S)
            if isinstance(event, LeasedBatch):
                is_idle = False
                self._is_member = self._is_member or event.lease.kind == "train"
                prepared = None if event.lease.is_lost else self._prepare(event)
                self._step(ahead)
                ahead = prepared
                continue
            self._step(ahead)
            ahead = None
            if event is None:
                self._failover.poll(0.0)  # it may be a lost pserver that the next chunk waits for
            if isinstance(event, ChunkEnd):
                self._end_chunk(event)
            elif isinstance(event, End):
                return "no more work"
            elif isinstance(event, NoWork):
                is_idle = True
            if is_idle and self._is_member:
                self._failover.retry(lambda: self._strategy.idle(_IDLE_S))

    def _prepare(self, work: LeasedBatch) -> Prepared:
        if work.lease.kind == "train":
            return self._strategy.prepare(work)
        return Prepared(work, self._remote.start(work.item, insert=False))

    def _step(self, prepared: Prepared | None) -> None:
        if prepared is None or prepared.work.lease.is_lost:
            return
        work = prepared.work
        if work.lease.kind == "train":
            outcome = self._strategy.step(prepared)
            self._tally.add(work, outcome)
            if not outcome.is_finite:
                self._reporter.report("not_finite", f"chunk {work.lease.name}, batch {work.batch}")
        else:
            self._evaluate(work, prepared.begun)
        self._tally.report_if_due(self._reporter, work.lease, self._settings.lease_s)

    def _evaluate(self, work: LeasedBatch, pulling: Pulling) -> None:
        batch = work.item.batch
        logits = self._remote.score(pulling)
        slot = self._job.train.gauc_slot
        names = [s.name for s in self._job.samples.sparse]
        groups = None if slot is None else group_ids(*batch.slot(names.index(slot)))
        self._tally.add_scores(work, logits, groups)
        if self._is_member:
            self._strategy.idle(0.0)

    def _end_chunk(self, end: ChunkEnd) -> None:
        if end.lease.is_lost:
            self._strategy.drop()
            self._tally.forget()
            return
        if end.lease.kind == "train":
            self._strategy.flush()
        end.lease.is_done = True
        self._tally.report_done(self._reporter, end)

    def _end_early(self, stream: WorkStream, ahead: Prepared | None) -> None:
        """Finishes the batch that was begun, so that what was pulled for it is of use, and gives the rest back."""
        self._step(ahead)
        self._strategy.flush()
        for lease in stream.unfinished:
            self._tally.report(self._reporter, lease)
            self._reporter.give_back(lease, "stopping")

    def _stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = self._tally.figures()
        if self._client is not None:
            found = self._client.stats()
            stats |= {"sent_bytes": found["sent_bytes"], "received_bytes": found["received_bytes"]}
            stats |= {"reconnects": found["reconnects"], "not_finite": found["not_finite"]}
        return stats

    def _leave(self, reason: str) -> None:
        try:
            if self._reporter.drain(_LEAVE_S):
                self._coordinator.leave(self._id, reason)
        except ElasticCTRError:
            pass  # its leases run out by themselves
        finally:
            self._reporter.close()
            self._coordinator.close()


def _check_model(model: Model) -> None:
    kept = sorted(model.state_dict().keys() - {name for name, _ in model.named_parameters()})
    if kept:
        raise ConfigError(
            f"model {model.name!r} keeps values beside its parameters ({kept[0]}; batch norm does so), which pservers "
            "do not hold; switch that off (model.batch_norm: false), train with cluster.strategy: collective, which "
            "has no pservers, or in one process (no cluster section)"
        )
