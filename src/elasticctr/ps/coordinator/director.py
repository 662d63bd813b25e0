"""A run with pservers from start to end: one thread that waits for pservers, runs the loop, and dismisses the roles.

Whenever it waits (waiting.py), it also supervises the fleet. A pserver lost without a standby ends the loop; once its
shard is served again, the run goes back to the newest good checkpoint and the loop begins again. How an epoch is
trained, a split evaluated or a checkpoint written is in executor.py and saving.py. It answers no calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from elasticctr.errors import (
    ConfigError,
    Corruption,
    DataError,
    ElasticCTRError,
    FailedPrecondition,
    InternalError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from elasticctr.ps.coordinator.claim import Claim
from elasticctr.ps.coordinator.compaction import shorten
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.course import LedgerCourse
from elasticctr.ps.coordinator.dense_start import convert, has_parts
from elasticctr.ps.coordinator.executor import FleetExecutor
from elasticctr.ps.coordinator.fleet import PServerFleet
from elasticctr.ps.coordinator.fleet_supervisor import FleetSupervisor, ServerLost
from elasticctr.ps.coordinator.job_checkpoint import find_good
from elasticctr.ps.coordinator.job_record import LEDGER_DIRECTORY, JobRecord
from elasticctr.ps.coordinator.membership import Member
from elasticctr.ps.coordinator.saving import Saving
from elasticctr.ps.coordinator.waiting import TICK_S, MemoryShortage, StopRequested, Waiting
from elasticctr.train.chunk_plan import Plan
from elasticctr.train.loop import RunLoop
from elasticctr.train.run_directory import RunDirectory

_LEAVING_S = 10.0
_GONE_S = 3.0  # roles beat every second or so
_MOST_ATTEMPTS = 20
# Why a pserver cannot load: the files are damaged, or are not for this job; any other error is its own trouble.
_DAMAGED = (Corruption, NotFound, DataError)
_FATAL = (ConfigError, FailedPrecondition, Unauthorized)


class Director:
    def __init__(
        self,
        coordinator: Coordinator,
        fleet: PServerFleet,
        plan: Plan,
        run: RunDirectory,
        claim: Claim,
        identity: dict[str, Any],
        *,
        is_resumed: bool,
    ) -> None:
        self._at = coordinator
        self._fleet = fleet
        self._plan = plan
        self._run = run
        self._claim = claim
        self._job = coordinator.job
        self._cluster = coordinator.cluster
        self._supervisor = FleetSupervisor(coordinator, fleet)
        self._record = JobRecord(coordinator, run, is_resumed=is_resumed)
        self._saving = Saving(coordinator, fleet, run, identity, self._record)
        self._waiting = Waiting(coordinator, self._supervisor, self._record, claim)
        self._executor = FleetExecutor(coordinator, fleet, plan, run, claim, self._record, self._saving, self._waiting)
        self._refused: set[Path] = set()
        self._began_s = time.monotonic()
        self._is_finished = False
        self._warnings: list[str] = []
        self._was_served = False  # by this coordinator's doing
        self._is_resumed = not any(member.is_alive for member in coordinator.members.everyone())
        self._last_id = max((member.id for member in coordinator.members.everyone()), default=0)

    def run(self) -> bool:
        """Returns whether the run is finished; False: it was stopped, and can be resumed."""
        try:
            while True:
                try:
                    self._bring_up()
                    self._train()
                    self._finish(self._at.course.end_reason(is_finished=True))
                    self._is_finished = True
                    return True
                except ServerLost as e:
                    with self._at.lock:
                        self._at.evaluating = None
                        self._at.is_leasing = False
                        self._at.note("server_lost", {"shard": e.shard, "reason": str(e)})
                except StopRequested:
                    return self._stop()
                except MemoryShortage:
                    with suppress(ServerLost, ElasticCTRError):
                        self._stop()
                    raise FailedPrecondition(
                        f"a pserver is nearly out of memory. {self._at.shortage}. The run was stopped before it dies; "
                        "resume it from its newest checkpoint (--resume) with more pservers (--pservers) or a higher "
                        "limit; sparse.admission keeps rare feasigns from getting rows"
                    ) from None
        finally:
            self._dismiss()
            self._saving.close(is_finished=self._is_finished)
            self._record.run()
            self._record.close()

    # Bringing pservers up: at the start, on resuming, and after one was lost

    def _bring_up(self) -> None:
        at = self._at
        attempts = 0
        while True:
            self._waiting.phase("waiting for pservers")
            self._await_servers()
            with at.lock:
                primaries = at.members.primaries()
                if all(member.era == at.era for member in primaries):
                    self._was_served = True
                    return  # all still have their state: a coordinator or a slow pserver is back
            self._waiting.phase("loading")
            self._saving.settle()
            target = self._go_back()
            failed = self._fleet.load(primaries, target, at.era)
            with at.lock:
                for member in primaries:
                    if member.id not in failed:
                        member.era, member.phase = at.era, "ready"
                    elif not isinstance(failed[member.id], (*_DAMAGED, *_FATAL)):
                        at.drop(member, str(failed[member.id]), "lost")
                at.generation += 1
            about = {"era": at.era, "ids": [m.id for m in primaries if m.id not in failed]}
            self._write_with_retries(partial(at.journal.append, "loaded", about))
            fatal = next((e for e in failed.values() if isinstance(e, _FATAL)), None)
            bad = next((e for e in failed.values() if isinstance(e, _DAMAGED)), None)
            if not failed:
                self._executor.is_best_loaded = False
                for text in self._warnings:
                    self._record.event("warning", {"text": text})
                self._warnings = []
                self._was_served = True
                return
            attempts += 1
            if fatal is not None or attempts > _MOST_ATTEMPTS or (bad is not None and target is None):
                raise fatal or bad or next(iter(failed.values()))
            if bad is not None:
                self._refused.add(Path(str(target)))
                self._warn_later(f"{Path(str(target)).name} cannot be loaded; trying the one before: {bad}")
                with at.lock:
                    for member in primaries:
                        member.era = -1

    def _await_servers(self) -> None:
        at = self._at
        began_s = time.monotonic()
        wait_s = self._cluster.coordinator_wait_s
        # By then a slow one is back, or a dead one was started again; at the start all are on their way.
        is_start = not self._was_served and self._is_resumed
        grace_s = wait_s / 2 if is_start else self._cluster.pserver_wait_s
        while True:
            with at.lock:
                missing = [s for s in range(at.members.shards) if at.members.primary(s) is None]
            if not missing:
                return
            waited_s = time.monotonic() - began_s
            if waited_s > wait_s:
                raise Unavailable(
                    f"no pserver for shard {missing[0]} of {at.members.shards} within {wait_s:g} s "
                    "(cluster.coordinator_wait_s); see its log"
                )
            if waited_s > grace_s:
                self._supervisor.fill(missing)
            self._waiting.tick(is_serving=False)

    def _go_back(self) -> str | None:
        """The state of the newest good checkpoint, or of the start, becomes the run's; returns what to load."""
        at = self._at
        batch_size, refused = self._job.train.batch_size, self._refused
        found = find_good(self._run.checkpoints, self._plan, batch_size, refused, self._warn_later)
        before = at.course.samples
        is_start = before == 0 or (not self._was_served and self._is_resumed)
        path = None if found is None else str(found.path.absolute())

        def turn_back() -> None:
            if found is None:
                at.course = LedgerCourse(self._job)
            else:
                at.course.restore_with(found.checkpoint.trainer, found.ledger, found.metrics)
            about = {"era": at.era + 1, "path": path, "state": self._record.keep_state()}
            at.journal.append("start" if is_start else "rollback", about)
            at.era += 1
            for member in at.members.everyone():
                # Trainers that joined this coordinator before have nothing to reload.
                if member.role == "trainer" and member.id > self._last_id and not self._was_served:
                    member.era = at.era
                # Members of the group keep pushing, if only empty pushes; new pservers are informed.
                member.is_asking |= member.is_counted
                member.is_counted = False
                if member.role == "standby" and member.is_alive:
                    member.phase = "joined"

        self._write_with_retries(turn_back)
        shorten(at, self._claim)
        if before or found is not None:
            lost = max(before - at.course.samples, 0)
            at.rollbacks += not is_start
            values = {"path": f"checkpoints/{found.path.name}" if found else None, "samples_again": lost}
            self._record.go_back(at.course.step)
            self._record.event("resume" if is_start else "rollback", values)
        self._saving.note_loaded(found.checkpoint.step if found else None, found.path if found else None)
        if found is None or has_parts(found.path):
            return path
        target = self._run.path.absolute() / LEDGER_DIRECTORY / "start"
        convert(self._job, found.path, target)
        return str(target)

    def _train(self) -> None:
        self._await_trainers()
        RunLoop(self._job, self._executor).run()
        # Before the journal says that the run is over: if this coordinator dies before, the next one publishes.
        if not self._saving.is_published():
            self._waiting.phase("publishing")
            self._waiting.until(self._saving.is_published)

    def _await_trainers(self) -> None:
        wanted = self._cluster.min_trainers or self._cluster.trainers
        self._waiting.phase("waiting for trainers")
        if self._at.course.samples == 0:
            self._waiting.until(lambda: len(self._at.members.trainers()) >= wanted)
        with self._at.lock:
            self._supervisor.count_all_in()

    def _warn_later(self, text: str) -> None:
        """Logged once pservers are up: going back cuts off the log."""
        if text not in self._warnings:
            self._warnings.append(text)

    def _write_with_retries(self, write: Callable[[], None]) -> None:
        self._saving.write_with_retries(write, partial(self._waiting.tick, is_serving=False))

    # The end

    def _stop(self) -> bool:
        self._waiting.phase("stopping")
        self._waiting.is_stopping = True
        at = self._at
        with at.lock:
            at.is_leasing, at.is_stopping, at.evaluating = False, True, None
        deadline = time.monotonic() + min(self._cluster.lease_s, _LEAVING_S)
        while at.members.trainers() and time.monotonic() < deadline:
            self._waiting.tick(is_serving=False)
        with at.lock:
            is_served = all(member.era == at.era for member in at.members.primaries())
            is_served = is_served and len(at.members.primaries()) == at.members.shards
        if is_served and at.course.samples and not self._executor.is_best_loaded:
            self._saving.save_with_retries(self._waiting.tick)
        self._finish("interrupted")
        return False

    def _finish(self, reason: str) -> None:
        at = self._at
        self._waiting.phase("ended")
        with at.lock:
            at.is_leasing, at.is_stopping = False, True
        self._record.finish(reason, time.monotonic() - self._began_s)
        if reason != "interrupted" and at.course.samples == 0:
            raise InternalError("no sample was trained on; check data.train")

    def _dismiss(self) -> None:
        """Trainers end first, then pservers. Silent ones are not waited for."""
        at = self._at
        with at.lock:
            at.is_leasing, at.is_stopping = False, True
        self._await_all(lambda: [m for m in at.members.trainers() if _is_heard(m)])
        with at.lock:
            at.is_over = True
        self._await_all(lambda: [m for m in at.members.pservers() if _is_heard(m) and not m.was_told_end])

    def _await_all(self, left: Callable[[], list[Member]]) -> None:
        deadline = time.monotonic() + _LEAVING_S
        while time.monotonic() < deadline:
            with self._at.lock:
                if not left():
                    return
            # A group that waits for a member that left gets the new membership, so that the others can leave too.
            with suppress(ServerLost, ElasticCTRError):
                self._supervisor.run(is_serving=not self._at.is_over)
            time.sleep(TICK_S)


def _is_heard(member: Member) -> bool:
    return time.monotonic() - member.seen_s < _GONE_S
