"""The coordinator's answers: membership, leases and reports (docs/formats/coordinator-api.md).

Every change is in the journal before it is answered. Nothing here waits for another process: the director, which shares
this object and its lock, waits for pservers, checkpoints and evaluations. status.py describes it to users.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Literal

from elasticctr.errors import DataError, ElasticCTRError, FailedPrecondition
from elasticctr.obs import console
from elasticctr.ps.coordinator.course import LedgerCourse
from elasticctr.ps.coordinator.evaluation import Evaluation
from elasticctr.ps.coordinator.journal import LedgerJournal
from elasticctr.ps.coordinator.ledger import Ledger, LedgerEntry, Report
from elasticctr.ps.coordinator.membership import Member, Membership
from elasticctr.ps.coordinator_client import unpack_metrics
from elasticctr.ps.identity import build, describe_difference, job_identity
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.job import Job
from elasticctr.train.log_window import LogWindow

Body = Mapping[str, Any]
GROUPED = ("sync", "hybrid")  # strategies whose pservers wait for a group
_WAIT_S = 0.1
_MOST_EXAMPLES = 10
_GONE_KEPT = 200  # members that are gone


class Coordinator:
    def __init__(self, job: Job, cluster: ClusterSettings, journal: LedgerJournal, incarnation: int) -> None:
        self.job = job
        self.cluster = cluster
        self.lock = threading.RLock()
        self.journal = journal
        self.incarnation = incarnation
        self.generation = 0
        self.era = 0  # rollbacks
        self.rollbacks = 0
        self.phase = "starting"
        self.members = Membership(cluster.pservers, standby=cluster.standby)
        self.course = LedgerCourse(job)
        self.evaluating: Evaluation | None = None
        self.is_leasing = False
        self.is_cut = False  # train.steps is reached: chunks under way are dropped
        self.is_stopping = False  # trainers are ordered to end
        self.is_over = False  # all roles are ordered to end
        self.wants_stop = threading.Event()
        self.wants_checkpoint = threading.Event()
        self.failure: ElasticCTRError | None = None
        self.shortage: str | None = None  # of a pserver's memory: the run is saved and ends
        self.window = LogWindow()
        self.examples: list[str] = []  # of bad lines
        self.news: list[tuple[str, dict[str, Any]]] = []  # events for the run's log
        self.reports: dict[str, int] = {}
        self.checkpoint: dict[str, Any] = {}  # of the newest, for the status
        self.in_sync: dict[int, bool] = {}  # by shard: whether its standby could take over, as its primary last said
        self.suspects: set[int] = set()  # shards that trainers cannot reach
        self._identity = job_identity(job)
        self.began_s = time.monotonic()

    # Membership

    def join(self, body: Body) -> dict[str, Any]:
        self._check_build(body)
        with self.lock:
            if self.is_over or self.is_stopping:
                return {"id": 0, "kind": "end", "order": "stop"}
            member, before = self.members.admit(body, self.era)
            if member.role != "trainer":
                member.era = -1  # holds nothing of the job yet
            if before is not None:
                self.drop(before, "started again", "left")
            self.journal.append("join", {"member": member.as_dict()})
            self.members.add(member)
            self.members.forget_gone(_GONE_KEPT)
            self.note("join", {"name": member.name, "role": member.role, "shard": member.shard, "id": member.id})
            if member.role == "trainer":
                answer = {"pservers": self.shard_list(), "strategy": self.cluster.strategy}
                return {"id": member.id, "rate_scale": self.course.rate_scale, **answer}
            assert member.shard is not None
            is_primary = member.role == "pserver"
            primary = None if is_primary else self.members.primary(member.shard)
            self.generation += 1
            return {
                "id": member.id,
                "shard": member.shard,
                "shards": self.members.shards,
                "role": "primary" if is_primary else "standby",
                "load": None,
                "hold": True,  # it serves once it has loaded what the director orders
                "primary": primary.address if primary is not None else None,
            }

    def _check_build(self, body: Body) -> None:
        said, own = str(body.get("build")), build()
        if said != own:
            raise FailedPrecondition(
                f"{body.get('name')}: is of build {said}, the coordinator of {own}; start all roles from one version"
            )
        identity = str(body.get("identity"))
        if identity not in (self._identity.text, self._identity.digest):
            # The digest of the identity is the pservers' gate: a role of another job must not learn it.
            difference = describe_difference(self._identity.text, identity)
            console.warn(f"turned away {str(body.get('name'))[:100]!r}, which is of another job: {difference}")
            raise FailedPrecondition(
                f"{body.get('name')}: is of another job than the coordinator, whose log says in what they differ; "
                "give all roles the same job file"
            )

    def beat(self, body: Body) -> dict[str, Any]:
        with self.lock:
            member = self.hear(body)
            stats = body.get("stats")
            if isinstance(stats, dict):
                member.stats = stats
                self._note_standby(member)
            return {"order": self._order(member), "rate_scale": self.course.rate_scale}

    def _note_standby(self, member: Member) -> None:
        """Notes whether a primary's standby has all that was acknowledged. One that was given up must not take over."""
        if member.role != "pserver" or member.shard is None or not member.is_alive:
            return
        is_in_sync = member.stats.get("standby") == "in_sync"
        self.in_sync[member.shard] = is_in_sync
        standby = self.members.standby(member.shard)
        if standby is not None and not is_in_sync and standby.phase == "ready":
            standby.era, standby.phase = -1, "joined"
            self.generation += 1
            self.note("standby_dropped", {"name": standby.name, "shard": standby.shard})

    def hear(self, body: Body) -> Member:
        """The member that calls; a call proves that it is alive."""
        member = self.members.get(body.get("id"))
        member.seen_s = time.monotonic()
        if member.phase == "lost":
            self._take_back(member)
        return member

    def _take_back(self, member: Member) -> None:
        """Takes back a member that was only slow. A trainer has lost its chunks; a pserver still has its state."""
        if member.role != "trainer":
            assert member.shard is not None
            taken = self.members.primary if member.role == "pserver" else self.members.standby
            if taken(member.shard) is not None:
                return  # it is ordered to end
        if member.role == "standby":
            member.era = -1  # its primary may have given it up; it must follow again
        member.phase = "ready" if member.role == "pserver" and member.era == self.era else "joined"
        if member.role != "trainer":
            self.generation += 1
        self.journal.append("back", {"id": member.id, "phase": member.phase})
        self.note("back", {"name": member.name})

    def _order(self, member: Member) -> str:
        if self.is_over or not member.is_alive:
            member.was_told_end = True
            is_replaced = member.role != "trainer" and member.phase == "lost" and self.members.wants_standby
            return "rejoin" if is_replaced and not self.is_over else "stop"
        if member.role != "trainer":
            return "go"
        if self.is_stopping:
            return "stop"
        if member.era < self.era:
            member.was_told = True
            return "reload"
        return "go"

    def drop(self, member: Member, reason: str, phase: Literal["lost", "left"]) -> None:
        """A member is gone; its chunks are for others. REQUIRES: the lock."""
        if not member.is_alive:
            return
        self.journal.append("gone", {"id": member.id, "phase": phase, "reason": reason})
        member.phase = phase
        if member.role == "trainer":
            member.is_counted = False
            lost = [chunk for ledger in self.ledgers() for chunk in ledger.lose(member.id)]
            if self.evaluating is not None:
                self.evaluating.forget(lost)
        else:
            self.generation += 1
        self.note("gone", {"name": member.name, "role": member.role, "shard": member.shard, "reason": reason})

    def leave(self, body: Body) -> dict[str, Any]:
        with self.lock:
            member = self.members.get(body.get("id"))
            self.drop(member, str(body.get("reason") or "left"), "left")
            return {}

    def shard_list(self) -> list[dict[str, Any]]:
        shards = []
        for shard in range(self.members.shards):
            primary, standby = self.members.primary(shard), self.members.standby(shard)
            is_ready = primary is not None and primary.phase == "ready"
            shards.append(
                {
                    "shard": shard,
                    "address": primary.address if primary is not None and is_ready else None,
                    "standby": standby.address if standby is not None else None,
                    "is_ready": is_ready,
                }
            )
        return shards

    # Work

    def lease(self, body: Body) -> dict[str, Any]:
        with self.lock:
            member = self.hear(body)
            if self.is_over or self.is_stopping or not member.is_alive:
                return {"kind": "end", "order": "stop"}
            have = _ids(body.get("have"))
            if member.era < self.era and not (member.was_told and not have):
                return self._wait(member, self._order(member))
            if member.era < self.era:
                member.era, member.was_told = self.era, False
            member.is_asking = True
            if not self.is_leasing or (self.cluster.strategy in GROUPED and not self._is_counted(member)):
                return self._wait(member)
            evaluating = self.evaluating
            ledger = self.course.ledger if evaluating is None else evaluating.ledger
            idle = sum(not ledger.held_by(t.id) for t in self.members.trainers()) if ledger else 0
            entry = None if ledger is None else ledger.lease(member.id, have, idle=idle)
            if ledger is None or entry is None:
                return self._wait(member)
            self._note_lease(ledger, entry, member)
            kind: dict[str, Any] = {"kind": "train"}
            if evaluating is not None:
                kind = {"kind": "evaluate", "split": evaluating.split}
            more = {"in_group": member.is_counted, "rate_scale": self.course.rate_scale}
            return {**kind, "chunk": entry.chunk.as_dict(), "lease": entry.lease, **more}

    def _is_counted(self, member: Member) -> bool:
        # The director counts members in, after it informed the pservers. No group steps while evaluating.
        return member.is_counted or self.evaluating is not None

    def _wait(self, member: Member, order: str = "go") -> dict[str, Any]:
        # A member counted in without work must know: the others wait for its empty pushes.
        more = {"in_group": member.is_counted, "rate_scale": self.course.rate_scale}
        return {"kind": "wait", "retry_after_s": _WAIT_S, "order": order, **more}

    def _note_lease(self, ledger: Ledger, entry: LedgerEntry, member: Member) -> None:
        try:
            values = {"chunk": str(entry.chunk.id), "id": member.id, "lease": entry.lease}
            self.journal.append("lease", values)
        except ElasticCTRError:
            ledger.lose(member.id, entry.chunk.id)
            raise

    def progress(self, body: Body) -> dict[str, Any]:
        metrics = self._metrics(body)
        with self.lock:
            member, chunk_id, report = self.hear(body), _id(body.get("chunk")), _report(body)
            ledger = self._ledger_of(chunk_id)
            is_held = ledger is not None and ledger.is_held(chunk_id, member.id, _lease(body))
            if ledger is None or not is_held or self.is_cut:
                return self._held(False)
            if self.evaluating is not None:
                self.evaluating.hold(chunk_id, metrics)
                return self._held(True)
            self._count(report.samples - ledger_samples(ledger, chunk_id), body, metrics)
            ledger.progress(chunk_id, report)
            return self._held(True)

    def done(self, body: Body) -> dict[str, Any]:
        metrics = self._metrics(body)
        with self.lock:
            member, chunk_id, report = self.hear(body), _id(body.get("chunk")), _report(body)
            ledger = self._ledger_of(chunk_id)
            if ledger is None or self.is_cut or not ledger.is_held(chunk_id, member.id, _lease(body)):
                return self._held(False)
            if self.evaluating is None:
                values = {"batches": report.batches, "samples": report.samples, "lines": report.lines}
                about = {"chunk": str(chunk_id), "id": member.id, **values, "bad": report.bad}
                self.journal.append("done", about)
                self._count(report.samples - ledger_samples(ledger, chunk_id), body, metrics)
                self._note_examples(body)
            else:
                self.evaluating.count(chunk_id, metrics)
            ledger.finish(chunk_id, report)
            return self._held(True)

    def give_back(self, body: Body) -> dict[str, Any]:
        with self.lock:
            member, chunk_id = self.hear(body), _id(body.get("chunk"))
            ledger = self._ledger_of(chunk_id)
            if ledger is not None and ledger.is_held(chunk_id, member.id):
                reason = str(body.get("reason") or "")
                self.journal.append("lost", {"chunk": str(chunk_id), "id": member.id, "reason": reason})
                lost = ledger.lose(member.id, chunk_id)
                if self.evaluating is not None:
                    self.evaluating.forget(lost)
            return {}

    def report(self, body: Body) -> dict[str, Any]:
        with self.lock:
            member = self.hear(body)
            what, detail = str(body.get("what")), body.get("detail")
            self.reports[what] = self.reports.get(what, 0) + 1
            self.note("report", {"name": member.name, "what": what, "detail": detail})
            if what == "pserver_unreachable":
                shards = range(self.members.shards)
                self.suspects |= {shard for shard in shards if str(shard) == str(detail)} or set(shards)
            if what == "memory":  # restarted, it would fail with the same rows
                self.shortage = self.shortage or f"{member.name}: {str(detail)[:500]}"
            if what == "data":  # no other trainer could read it either
                self.failure = self.failure or DataError(str(detail))
            return {}

    def _held(self, is_held: bool) -> dict[str, Any]:
        return {"is_held": is_held, "rate_scale": self.course.rate_scale}

    def ledgers(self) -> list[Ledger]:
        """Of the epoch, and of the evaluation that interrupts it. REQUIRES: the lock."""
        evaluating = [self.evaluating.ledger] if self.evaluating is not None else []
        return [*([self.course.ledger] if self.course.ledger is not None else []), *evaluating]

    def _ledger_of(self, chunk_id: int) -> Ledger | None:
        return next((ledger for ledger in self.ledgers() if ledger.find(chunk_id) is not None), None)

    def _metrics(self, body: Body) -> bytes | None:
        """The state of reported metrics, which can be merged. No lock is needed: this takes longer than the rest."""
        text = body.get("metrics")
        if not isinstance(text, str) or not text:
            return None
        state = unpack_metrics(text)
        self.course.metrics.check_state(state)
        return state

    def _count(self, samples: int, body: Body, metrics: bytes | None) -> None:
        loss_sum = body.get("loss_sum")
        self.window.add(max(samples, 0), float(loss_sum) if isinstance(loss_sum, int | float) else 0.0)
        if metrics is not None:
            self.course.metrics.merge_state(metrics)

    def _note_examples(self, body: Body) -> None:
        examples = body.get("examples")
        if isinstance(examples, list):
            room = _MOST_EXAMPLES - len(self.examples)
            self.examples += [str(example)[:500] for example in examples[:room]]

    # For the director

    def note(self, event: str, values: dict[str, Any]) -> None:
        self.news.append((event, values))


def ledger_samples(ledger: Ledger, chunk_id: int) -> int:
    entry = ledger.find(chunk_id)
    return entry.samples if entry is not None else 0


def _id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).isdigit():
        raise DataError(f"{value!r} is not the id of a chunk")
    return int(value)


def _ids(value: object) -> set[int]:
    if value is None:
        return set()
    if not isinstance(value, list):
        raise DataError("'have' must be a list of chunk ids")
    return {_id(one) for one in value}


def _lease(body: Body) -> int | None:
    value = body.get("lease")
    return value if isinstance(value, int) else None


def _report(body: Body) -> Report:
    counts = []
    for name in ("batches", "samples", "lines", "bad"):
        value = body.get(name, 0) or 0
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise DataError(f"{name!r} must be a count, not {value!r}")
        counts.append(value)
    return Report(*counts)
