"""The search: keeps `parallel` trials running until all are done, and writes the results."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from elasticctr.config import apply_overrides, load_yaml
from elasticctr.errors import AlreadyExists, FailedPrecondition
from elasticctr.obs.progress import Progress
from elasticctr.storage.atomic import write_atomic
from elasticctr.train.interrupt import Interrupt
from elasticctr.train.job import load_job
from elasticctr.tune.report import write_report
from elasticctr.tune.settings import TuneSettings, as_overrides
from elasticctr.tune.study import Study, StudyResult
from elasticctr.tune.trial import TrialProcess, drop_checkpoints, trial_path

_POLL_S = 0.1
_MOST_FAILURES = 3  # in a row before the first success: the space or the job is wrong
# Settings that may change when a search is resumed.
_FREE = ("trials", "parallel", "keep")


class Tuner:
    def __init__(self, settings: TuneSettings, *, quiet: bool = False) -> None:
        self._settings = settings
        self._path = Path(settings.study_dir)
        self._quiet = quiet
        job = load_job(settings.job)
        if job.data.valid is None:
            raise FailedPrecondition(f"{settings.job}: needs data.valid, on which trials are compared")
        if settings.metric == "gauc" and job.train.gauc_slot is None:
            raise FailedPrecondition(f"{settings.job}: metric gauc needs train.gauc_slot")
        self._seeds = [job.train.seed + i for i in range(settings.repeats)]
        cpus = len(os.sched_getaffinity(0))
        self._threads = job.train.threads or max(1, cpus // settings.parallel)

    def run(self, *, resume: bool = False) -> StudyResult:
        self._begin(resume)
        study = Study(self._path / "study.log", self._settings)
        running = [self._go_on(old, new, values) for old, new, values in study.take_over()]
        console = Console(quiet=True) if self._quiet else None
        with Interrupt() as interrupt, Progress("tuning", self._settings.trials, "trials", console) as progress:
            progress.advance(len(study.tried()) - len(running))
            try:
                is_finished = self._loop(study, running, interrupt, progress)
            finally:
                for trial in running:
                    trial.stop()
        found = StudyResult(self._path, study.best(), study.tried(), is_finished)
        self._write(study, found)
        write_report(found, self._settings, study.importances())
        return found

    def _loop(self, study: Study, running: list[TrialProcess], interrupt: Interrupt, progress: Progress) -> bool:
        is_exhausted = False
        while not interrupt.is_set:
            while len(running) < self._settings.parallel and not is_exhausted:
                if len(study.tried()) >= self._settings.trials or (asked := study.ask()) is None:
                    is_exhausted = True
                    break
                running.append(self._make_trial(*asked))
            if not running:
                return True
            for trial in list(running):
                if self._go(study, trial):
                    running.remove(trial)
                    best = study.best()
                    progress.advance(1, note="" if best is None else f"best {self._settings.metric} {best.score:.5f}")
                    if self._settings.keep == "best":
                        self._drop_checkpoints(study)
                    self._write(study, StudyResult(self._path, best, study.tried(), False))
                    self._check_failures(study)
            time.sleep(_POLL_S)
        return False

    def _go(self, study: Study, trial: TrialProcess) -> bool:
        """Advances a trial; True if it is over."""
        for evaluation, value in trial.poll():
            if study.report(trial.number, evaluation, value):
                trial.kill()
                study.tell_pruned(trial.number)
                return True
        if not trial.is_over:
            return False
        if trial.failure is not None:
            study.tell_failed(trial.number, trial.failure)
        else:
            study.tell(trial.number, trial.score)
        return True

    def _make_trial(self, number: int, values: dict[str, Any]) -> TrialProcess:
        return TrialProcess(self._settings, number, values, self._seeds, self._threads)

    def _go_on(self, old: int, new: int, values: dict[str, Any]) -> TrialProcess:
        """Continues the trial that was number `old` when the search was killed; finished runs are kept."""
        before, after = trial_path(self._settings, old), trial_path(self._settings, new)
        if before.exists() and not after.exists():
            before.rename(after)
        return self._make_trial(new, values)

    def _check_failures(self, study: Study) -> None:
        states = [t for t in study.tried() if t.state != "running"]
        if len(states) >= _MOST_FAILURES and all(t.state == "failed" for t in states):
            raise FailedPrecondition(
                f"the first {len(states)} trials failed, so the job or the space is wrong. The last one: "
                f"{states[-1].reason} (its log: {trial_path(self._settings, states[-1].number)})"
            )

    def _drop_checkpoints(self, study: Study) -> None:
        best = study.best()
        for tried in study.tried():
            if tried.state != "running" and (best is None or tried.number != best.number):
                drop_checkpoints(self._settings, tried.number)

    def _begin(self, resume: bool) -> None:
        """Creates the directory; refuses to mix two searches in it."""
        file = self._path / "tune.yaml"
        settings = self._settings.model_dump(mode="json")
        if file.exists():
            if not resume:
                raise AlreadyExists(
                    f"{self._path}: already holds a search; continue it with --resume, or give another study_dir"
                )
            before = load_yaml(file)
            changed = [key for key in settings if key not in _FREE and settings[key] != before.get(key)]
            if changed:
                raise FailedPrecondition(
                    f"{self._path}: was started with another {', '.join(changed)}, so scores would not be comparable. "
                    "Use the same value, or another study_dir"
                )
        self._path.mkdir(parents=True, exist_ok=True)
        write_atomic(file, yaml.safe_dump(settings, sort_keys=False).encode())

    def _write(self, study: Study, found: StudyResult) -> None:
        """Writes study.json and, after the first success, best.yaml: the job with the best values."""
        summary = {
            "metric": self._settings.metric,
            "is_finished": found.is_finished,
            "best": None if found.best is None else asdict(found.best),
            "importances": study.importances(),
            "trials": [asdict(t) for t in found.tried],
        }
        write_atomic(self._path / "study.json", json.dumps(summary, indent=1).encode())
        if found.best is not None:
            job = apply_overrides(load_yaml(self._settings.job), as_overrides(found.best.values), environ={})
            beside = Path(self._settings.job).parent / str(job.get("schema"))
            if isinstance(job.get("schema"), str) and beside.exists():
                job["schema"] = str(beside)  # was relative to the job file
            write_atomic(self._path / "best.yaml", yaml.safe_dump(job, sort_keys=False).encode())
