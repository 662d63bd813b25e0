"""What a run with pservers writes for its readers and for its own restart: events.jsonl, metrics.json, the state."""

from __future__ import annotations

import json
import shlex
import time
from contextlib import suppress
from typing import Any

from elasticctr.data.pipeline import Stats
from elasticctr.errors import Corruption, ElasticCTRError, FailedPrecondition, NotFound
from elasticctr.obs.plain import plain
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.job_checkpoint import describe_ledger
from elasticctr.ps.coordinator.ledger import Ledger
from elasticctr.storage.atomic import read_json, write_atomic, write_json
from elasticctr.train.checkpoint import METRICS
from elasticctr.train.chunk_plan import Plan
from elasticctr.train.events import EventWriter
from elasticctr.train.metrics.label_metrics import LabelMetrics
from elasticctr.train.run_directory import RunDirectory

LEDGER_DIRECTORY = "ledger"
METRICS_EVERY_S = 5.0
_KEPT_STATES = 4


class JobRecord:
    """Used by the director's thread alone."""

    def __init__(self, coordinator: Coordinator, run: RunDirectory, *, is_resumed: bool) -> None:
        self._at = coordinator
        self._run = run
        self._directory = run.path / LEDGER_DIRECTORY
        self._samples_at_start = coordinator.course.samples
        self._events = EventWriter(run.events, coordinator.course.step if is_resumed else None)
        self._logged = coordinator.course.step // coordinator.job.train.log_every
        self._metrics_due_s = time.monotonic() + METRICS_EVERY_S
        self._states = 0
        if not is_resumed:
            self.event("start", {"commands": self._commands()})

    def run(self) -> None:
        """Writes what is due."""
        at = self._at
        with at.lock:
            news, at.news = at.news, []
            step = at.course.step
        for event, values in news:
            self.event(event, values)
        if step // at.job.train.log_every != self._logged:
            self._logged = step // at.job.train.log_every
            self._log()
        if time.monotonic() > self._metrics_due_s:
            self._metrics_due_s = time.monotonic() + METRICS_EVERY_S
            self._keep_metrics()

    def event(self, event: str, values: dict[str, Any]) -> None:
        course = self._at.course
        with suppress(ElasticCTRError):  # a full disk stops no training
            self._events.write(event, course.step, course.samples, course.epoch, values)

    def note_data(self, split: str, files: int, stats: Stats) -> None:
        """What was read for a split."""
        self.event("data", {"split": split, "files": files, "rows": stats.samples, "bad_lines": stats.bad})

    def go_back(self, step: int) -> None:
        """Events past `step` happen again."""
        self._events.close()
        self._events = EventWriter(self._run.events, step)
        self._logged = step // self._at.job.train.log_every
        self._samples_at_start = min(self._samples_at_start, self._at.course.samples)

    def keep_state(self) -> str:
        """Writes the course to a file of the ledger's and returns its name, for the journal. REQUIRES: the lock."""
        course = self._at.course
        ledger = None if course.ledger is None else describe_ledger(course.ledger)
        state = {"course": plain(course.state({})), "ledger": ledger}
        self._states += 1
        name = f"state-{self._at.incarnation}-{self._states}.json"
        write_json(self._directory / name, state)
        write_atomic(self._directory / METRICS, course.metrics.state())
        for old in sorted(self._directory.glob("state-*.json"), key=lambda p: p.stat().st_mtime_ns)[:-_KEPT_STATES]:
            old.unlink(missing_ok=True)
        return name

    def finish(self, reason: str, seconds: float) -> None:
        """The end of the run's log, its metrics, and the report of one that is finished."""
        at = self._at
        self.run()
        trained = max(at.course.samples - self._samples_at_start, 0)
        values = {"reason": reason, "seconds": seconds, "samples_per_s": trained / max(seconds, 1e-9)}
        self.event("end", values)
        metrics = {"train": at.course.metrics.report(), **at.course.evaluations}
        self._run.write_metrics(metrics)
        with at.lock:
            at.journal.append("end", {"reason": reason})
        if reason != "interrupted":
            from elasticctr.train.report.report import write_report

            write_report(self._run.path)

    def close(self) -> None:
        self._events.close()

    def _log(self) -> None:
        at = self._at
        with at.lock:
            if not at.window.turn():
                return
            auc = at.course.metrics.auc()
            values = {
                "loss": at.window.last_loss,
                "auc": auc,
                "samples_per_s": at.window.rate,
                "rate_scale": at.course.rate_scale,
                **at.course.metrics.figures("auc"),
            }
        self.event("train", values)

    def _keep_metrics(self) -> None:
        with self._at.lock:
            state = self._at.course.metrics.state()
        with suppress(ElasticCTRError):
            write_atomic(self._directory / METRICS, state)

    def _commands(self) -> dict[str, str]:
        run = shlex.quote(str(self._run.path))
        return {
            "Resume": f"elasticctr train {run}/job.yaml --on local --resume",
            "Evaluate": f"elasticctr eval {run} --data PATH",
            "Predict": f"elasticctr predict {run} --data PATH --out scores.parquet",
        }


def restore_state(coordinator: Coordinator, run: RunDirectory, plan: Plan, name: str) -> None:
    """Restores the course that `keep_state` wrote."""
    path = run.path / LEDGER_DIRECTORY / name
    state = read_json(path)
    kept = state.get("ledger")
    ledger = None
    if kept is not None:
        ledger = Ledger.restore(plan.epoch(int(kept["epoch"])), kept)
    coordinator.course.restore_with(state["course"], ledger, None)


def restore_metrics(coordinator: Coordinator, run: RunDirectory) -> None:
    """Restores progressive metrics as last written; a few seconds of them may be missing."""
    try:
        coordinator.course.metrics.restore((run.path / LEDGER_DIRECTORY / METRICS).read_bytes())
    except (OSError, Corruption, FailedPrecondition, NotFound, json.JSONDecodeError):
        coordinator.course.metrics = LabelMetrics(coordinator.job.samples.label)
