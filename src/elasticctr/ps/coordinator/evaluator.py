"""Evaluation in a run with pservers: trainers score a split's chunks, the director's thread waits for them.

The director says when, and hands in how to wait. What the result decides (the schedule, the best state) is noted in the
course; which checkpoint is written of it is the director's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticctr.data.pipeline import Stats
from elasticctr.errors import DataError
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.evaluation import Evaluation
from elasticctr.ps.coordinator.fleet import PServerFleet
from elasticctr.ps.coordinator.job_record import JobRecord
from elasticctr.train.checkpoint import best_checkpoint
from elasticctr.train.chunk_plan import Plan
from elasticctr.train.metrics.label_metrics import values_of
from elasticctr.train.run_directory import RunDirectory

Wait = Callable[[Callable[[], bool]], None]  # until it is so; raises what ends the waiting


class Evaluator:
    """Used by the director's thread alone."""

    def __init__(
        self, coordinator: Coordinator, fleet: PServerFleet, plan: Plan, run: RunDirectory, record: JobRecord
    ) -> None:
        self._at = coordinator
        self._fleet = fleet
        self._plan = plan
        self._run = run
        self._record = record
        self._evaluations = 0
        self.is_best_loaded = False  # what pservers hold is not what the course says, and not to be saved

    def run_valid(self, wait: Wait) -> bool:
        """Evaluates, and has the schedule decide; True if there was no better result."""
        at, course = self._at, self._at.course
        result = self._evaluate("valid", wait)
        with at.lock:
            best = course.evaluations.get("valid")
            values = values_of(result)
            is_best = course.schedule.see_evaluation(values)
            found = course.schedule.overfitting.see(course.epoch + 1, course.metrics.compute().logloss, values)
            # Reported with the state that is kept.
            course.evaluations["valid"] = result if is_best or best is None else best
        if found is not None:
            self._record.event("warning", found.as_dict())
        return is_best

    def run_test(self, wait: Wait) -> None:
        """Evaluates the best state, where there is one."""
        best = best_checkpoint(self._run.path)
        if best is not None and best.step != self._at.course.step:
            self._load_best(best.path)
        self._at.course.evaluations["test"] = self._evaluate("test", wait)

    def _load_best(self, path: Path) -> None:
        at = self._at
        self.is_best_loaded = True
        with at.lock:
            primaries = at.members.primaries()
            at.era += 1
            # Whoever restarts from the journal loads again.
            at.journal.append("best", {"era": at.era, "path": str(path.absolute())})
        failed = self._fleet.load(primaries, str(path.absolute()), at.era)
        for error in failed.values():
            raise error
        with at.lock:
            for member in primaries:
                member.era = at.era
            at.generation += 1

    def _evaluate(self, split: str, wait: Wait) -> dict[str, Any]:
        at = self._at
        with at.lock:
            at.phase = f"evaluating {split}"
        self._evaluations += 1
        # A restarted coordinator begins anew: the incarnation keeps ids of its evaluations apart from earlier ones.
        chunks, cut = self._plan.evaluation(split, (at.incarnation << 16) + self._evaluations)
        evaluation = Evaluation(split, chunks, at.job.samples.label)
        with at.lock:
            at.evaluating, at.is_leasing, was_cut, at.is_cut = evaluation, True, at.is_cut, False
        try:
            wait(lambda: evaluation.ledger.is_done)
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
