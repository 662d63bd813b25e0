"""When a run with pservers is saved. A failed checkpoint is logged and tried again; training continues."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from elasticctr.errors import ElasticCTRError, InternalError, Unavailable
from elasticctr.obs.plain import plain
from elasticctr.ps.coordinator.background_publisher import BackgroundPublisher
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.fleet import PServerFleet
from elasticctr.ps.coordinator.job_checkpoint import Moment, describe_ledger, write_job_checkpoint
from elasticctr.ps.coordinator.job_record import JobRecord
from elasticctr.storage.atomic import DiskFull
from elasticctr.train.checkpoint import best_checkpoint
from elasticctr.train.run_directory import RunDirectory

T = TypeVar("T")

_AGAIN_S = 10.0
_SOON_S = 1.0  # where nothing else can be done until then


class Saving:
    def __init__(
        self,
        coordinator: Coordinator,
        fleet: PServerFleet,
        run: RunDirectory,
        identity: dict[str, Any],
        record: JobRecord,
    ) -> None:
        self._at = coordinator
        self._fleet = fleet
        self._run = run
        self._identity = identity
        self._record = record
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="elasticctr-checkpoint")
        self._future: Future[Path] | None = None
        self._saving_step = -1
        self._newest: tuple[int, Path] | None = None
        self._saved_step = coordinator.course.step
        self._saved_s = time.monotonic()
        self._again_s = self._failed_s = 0.0
        self._publisher = BackgroundPublisher(coordinator, run)

    def note_loaded(self, step: int | None, path: Path | None) -> None:
        """The run is at the step of this checkpoint."""
        self._newest = (step, path) if step is not None and path is not None else None
        self._saved_step = self._at.course.step
        self._saved_s, self._again_s = time.monotonic(), 0.0

    def save_if_due(self) -> None:
        """Begins a checkpoint, or finishes the one under way."""
        if self._future is not None:
            if self._future.done() and self._settle_one() and self._publisher.is_due(self._saved_step):
                self.publish()
            return
        self._publisher.run()
        at, now = self._at, time.monotonic()
        every_s = at.cluster.checkpoint_s
        step = at.course.step
        is_due = at.wants_checkpoint.is_set()
        is_due |= at.course.passed(at.job.train.checkpoint_every, self._saved_step)
        is_due |= every_s is not None and now - self._saved_s >= every_s
        is_due |= self._publisher.is_due(step)
        if is_due and now >= self._again_s:
            at.wants_checkpoint.clear()
            if step != self._saved_step:
                self._begin()

    def save_with_retries(self, tick: Callable[[], None]) -> Path:
        """A checkpoint of now. Tries for as long as a coordinator may be away, calling `tick` while it waits."""
        deadline = time.monotonic() + self._at.cluster.coordinator_wait_s
        while True:
            while self._future is not None:
                tick()
                if self._future.done():
                    self._settle_one()
            if self._newest is not None and self._newest[0] == self._at.course.step and self._is_same():
                return self._newest[1]
            if time.monotonic() > deadline:
                raise InternalError(
                    f"{self._run.checkpoints}: no checkpoint could be written for "
                    f"{self._at.cluster.coordinator_wait_s:g} s; see the warnings in events.jsonl, make room and resume"
                )
            if time.monotonic() >= min(self._again_s, self._failed_s + _SOON_S):
                self._begin()
            else:
                tick()

    def write_with_retries(self, write: Callable[[], T], tick: Callable[[], None]) -> T:
        """What `write` returns, called under the lock: lines and files without which the run must not continue.

        While the disk is full this is reported and tried again, for as long as a coordinator may be away.
        """
        deadline = time.monotonic() + self._at.cluster.coordinator_wait_s
        while True:
            try:
                with self._at.lock:
                    return write()
            except (DiskFull, Unavailable) as e:  # Unavailable is the journal's
                if time.monotonic() > deadline:
                    raise
                self._at.checkpoint = {**self._at.checkpoint, "failed": str(e)}
            again_s = time.monotonic() + _SOON_S
            while time.monotonic() < again_s:
                tick()

    def settle(self) -> None:
        """Waits for a checkpoint under way, even if it fails."""
        if self._future is not None:
            self._settle_one()

    def publish(self) -> None:
        """Publishes the newest checkpoint if the job publishes."""
        if self._newest is not None:
            self._publisher.publish(*self._newest)

    def publish_owed(self) -> None:
        """Publishes the newest checkpoint if an earlier coordinator died before it did."""
        if self._newest is not None and self._publisher.is_owed(self._newest[0]):
            self.publish()

    def is_published(self) -> bool:
        """Whether no version is under way. Begins the next that waits."""
        self._publisher.run()
        return self._publisher.is_out

    def publish_best(self) -> None:
        """Publishes the best state last, unless it is the newest checkpoint."""
        best = best_checkpoint(self._run.path)
        if best is not None and self._newest is not None and best.step != self._newest[0]:
            self._publisher.publish(best.step, best.path)

    def close(self, *, is_finished: bool) -> None:
        """Waits for versions under way. REQUIRES: training is over."""
        self._publisher.close(is_finished=is_finished)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _is_same(self) -> bool:
        """Whether the newest checkpoint says what would be written now: the schedule may have moved on since."""
        return self._newest_state == self._state()

    def _state(self) -> dict[str, Any]:
        with self._at.lock:
            state = plain(self._at.course.state(self._identity))
        assert isinstance(state, dict)
        return state

    def _begin(self) -> None:
        at = self._at
        with at.lock:
            course, era = at.course, at.era
            servers = at.members.primaries()
            ledger = None if course.ledger is None else describe_ledger(course.ledger)
            self._begun_state = self._state()
            moment = Moment(course.step, self._begun_state, ledger, course.metrics.state())
            self._saving_step = course.step

        def save_parts(directory: str) -> None:
            for answer in self._fleet.save(servers, directory).values():
                if isinstance(answer, ElasticCTRError):
                    raise answer

        def is_current() -> bool:
            with at.lock:
                return at.era == era and len(servers) == at.members.shards

        keep = at.job.train.keep_checkpoints
        self._future = self._pool.submit(
            write_job_checkpoint, self._run.checkpoints, moment, save_parts, is_current, keep, self._publisher.spared
        )

    _newest_state: dict[str, Any] | None = None
    _begun_state: dict[str, Any] | None = None

    def _settle_one(self) -> bool:
        """Finishes a checkpoint that was written; False if it failed."""
        assert self._future is not None
        future, self._future = self._future, None
        try:
            path = future.result()
        except ElasticCTRError as e:
            self._failed_s = time.monotonic()
            self._again_s = self._failed_s + _AGAIN_S
            self._at.checkpoint = {**self._at.checkpoint, "failed": str(e)}
            self._record.event("checkpoint_failed", {"reason": str(e), "again_in_s": _AGAIN_S})
            return False
        self._newest, self._newest_state = (self._saving_step, path), self._begun_state
        self._saved_step, self._saved_s, self._again_s = self._saving_step, time.monotonic(), 0.0
        with self._at.lock:
            self._at.checkpoint = {"step": self._saving_step, "path": str(path), "at": time.time()}
            with suppress(Unavailable):  # nothing depends on the line, and a full disk stops no training
                self._at.journal.append("checkpoint", {"step": self._saving_step, "path": path.name})
        self._record.event("checkpoint", {"path": f"checkpoints/{path.name}"})
        return True
