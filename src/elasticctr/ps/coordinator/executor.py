"""The executor of runs with pservers: trainers work on epochs and evaluations, pservers save checkpoints.

The director's thread runs it and waits. When a pserver is lost, an exception ends the waiting; the director goes back
to a checkpoint and starts the loop again. An epoch therefore ends only after its evaluation, so that an evaluation
that was cut short is repeated.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from elasticctr.data.pipeline import BadLineLimit, Stats
from elasticctr.errors import DataError
from elasticctr.ps.coordinator.claim import Claim
from elasticctr.ps.coordinator.compaction import shorten
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.course import LedgerCourse
from elasticctr.ps.coordinator.evaluation import Evaluation
from elasticctr.ps.coordinator.fleet import PServerFleet
from elasticctr.ps.coordinator.job_record import JobRecord
from elasticctr.ps.coordinator.ledger import Ledger
from elasticctr.ps.coordinator.saving import Saving
from elasticctr.ps.coordinator.waiting import Waiting
from elasticctr.train.checkpoint import note_best
from elasticctr.train.chunk_plan import Plan, digest_of
from elasticctr.train.loop import Executor, find_better
from elasticctr.train.metrics.label_metrics import values_of
from elasticctr.train.overfitting import Overfitting
from elasticctr.train.run_directory import RunDirectory


class FleetExecutor(Executor):
    def __init__(
        self,
        coordinator: Coordinator,
        fleet: PServerFleet,
        plan: Plan,
        run: RunDirectory,
        claim: Claim,
        record: JobRecord,
        saving: Saving,
        waiting: Waiting,
    ) -> None:
        self._at = coordinator
        self._fleet = fleet
        self._plan = plan
        self._run = run
        self._claim = claim
        self._record = record
        self._saving = saving
        self._waiting = waiting
        self._evaluations = 0
        self.is_best_loaded = False  # what pservers hold is not what the course says, and must not be saved

    @property
    def course(self) -> LedgerCourse:
        return self._at.course

    @property
    def lock(self) -> AbstractContextManager[object]:
        return self._at.lock

    def train_epoch(self) -> Generator[None, None, None]:
        at, course = self._at, self.course
        ledger = course.ledger or self._begin_epoch()
        with at.lock:
            at.is_cut = False
        self._lease()
        while not ledger.is_done and not course.is_over:
            self._waiting.tick()
            self._check_bad_lines()
            self._saving.save_if_due()
            yield
            if not at.is_leasing:  # there was an evaluation
                self._lease()
        with at.lock:
            at.is_leasing = False
            at.is_cut = not ledger.is_done
        self._check_bad_lines()
        if ledger.is_done and ledger.totals().samples == 0:
            raise DataError("no sample was trained on; check data.train and its format")
        known = self._plan.prepare()
        self._record.note_data("train", known.files, course.stats(known.known))

    def _begin_epoch(self) -> Ledger:
        at, course = self._at, self.course

        def begin() -> Ledger:
            chunks = self._plan.epoch(course.epoch)
            at.journal.append("epoch", {"epoch": course.epoch, "chunks": len(chunks), "plan": digest_of(chunks)})
            ledger = Ledger(chunks)
            course.open_ledger(ledger)
            return ledger

        return self._saving.write_with_retries(begin, self._waiting.tick)

    def _lease(self) -> None:
        self._waiting.phase("training")
        with self._at.lock:
            self._at.is_leasing = True

    def _check_bad_lines(self) -> None:
        """Raises DataError when too many of the lines read so far are bad."""
        at = self._at
        with at.lock:
            stats = at.course.stats(self._plan.prepare().known)
            stats = Stats(stats.lines, stats.samples, stats.bad, tuple(at.examples))
        BadLineLimit(at.job.samples, at.job.data.train, stats).check()

    def evaluate(self, split: str) -> dict[str, Any]:
        at = self._at
        if at.is_leasing:
            self._pause()
        self._waiting.phase(f"evaluating {split}")
        self._evaluations += 1
        # A restarted coordinator starts over: the incarnation keeps ids of its evaluations apart from earlier ones.
        chunks, cut = self._plan.evaluation(split, (at.incarnation << 16) + self._evaluations)
        evaluation = Evaluation(split, chunks, at.job.samples.label)
        with at.lock:
            at.evaluating, at.is_leasing, was_cut, at.is_cut = evaluation, True, at.is_cut, False
        try:
            self._waiting.until(lambda: evaluation.ledger.is_done)
        finally:
            with at.lock:
                at.evaluating, at.is_leasing, at.is_cut = None, False, was_cut
        totals = evaluation.ledger.totals()
        stats = Stats(totals.lines + cut.known.lines, totals.samples, totals.bad + cut.known.bad)
        if not totals.samples:
            raise DataError(f"data.{split} has no samples ({stats.lines} lines, {stats.bad} bad)")
        result = evaluation.metrics.report()
        self._record.note_data(split, cut.files, stats)
        self._record.event("eval", {"split": split, **values_of(result)})
        return result

    def _pause(self) -> None:
        """Waits until no chunk is under way."""
        with self._at.lock:
            self._at.is_leasing = False
        self._waiting.until(lambda: self.course.ledger is None or not self.course.ledger.holders())

    def train_logloss(self) -> float | None:
        with self._at.lock:
            return self.course.metrics.compute().logloss

    def warn(self, found: Overfitting) -> None:
        self._record.event("warning", found.as_dict())

    def checkpoint(self) -> Path:
        return self._saving.save_with_retries(self._waiting.tick)

    def note_best(self, checkpoint: Path) -> None:
        note_best(self._run.checkpoints, checkpoint)

    def end_epoch(self) -> None:
        at, course = self._at, self.course
        with at.lock:
            if course.ledger is not None and course.ledger.is_done:
                course.end_epoch()
        self._saving.write_with_retries(
            lambda: at.journal.append("course", {"state": self._record.keep_state()}), self._waiting.tick
        )
        shorten(at, self._claim)

    def publish(self) -> None:
        self._fleet.order(self._at.members.primaries(), {"op": "forget", "below": self.course.epoch << 32})
        self._saving.publish()

    def finish(self) -> None:
        self.checkpoint()
        self._saving.publish_owed()
        self._saving.publish_best()
        if self._at.job.data.test is not None and (best := find_better(self._run, self.course)) is not None:
            self._load_best(best.path)

    def _load_best(self, path: Path) -> None:
        at = self._at
        self.is_best_loaded = True
        with at.lock:
            primaries = at.members.primaries()
            at.era += 1
            # A coordinator that restarts from the journal loads again.
            at.journal.append("best", {"era": at.era, "path": str(path.absolute())})
        failed = self._fleet.load(primaries, str(path.absolute()), at.era)
        for error in failed.values():
            raise error
        with at.lock:
            for member in primaries:
                member.era = at.era
            at.generation += 1
