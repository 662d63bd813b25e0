"""A trial: the job with some settings changed, run by `elasticctr train` in a separate process, once per seed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elasticctr.cluster import parent_death
from elasticctr.errors import DataError, NotFound
from elasticctr.storage.atomic import write_atomic
from elasticctr.train.checkpoint import list_checkpoints
from elasticctr.train.events import read_events
from elasticctr.tune.settings import TuneSettings, as_overrides

_STOP_S = 20.0  # time to write a checkpoint


class TrialProcess:
    """The runs of one set of values, one at a time. Call `poll` until `is_over`."""

    def __init__(
        self, settings: TuneSettings, number: int, values: Mapping[str, Any], seeds: list[int], threads: int
    ) -> None:
        self.number = number
        self.values = dict(values)
        self.path = trial_path(settings, number)
        self.scores: list[float] = []
        self.failure: str | None = None
        self._settings = settings
        self._seeds = seeds
        self._threads = threads
        self._process: subprocess.Popen[bytes] | None = None
        self._seen = 0  # evaluations of the first run already returned
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path / "values.json", json.dumps(self.values, indent=1).encode())

    @property
    def is_over(self) -> bool:
        return self.failure is not None or len(self.scores) == len(self._seeds)

    @property
    def score(self) -> float:
        return sum(self.scores) / len(self.scores)

    def poll(self) -> Iterator[tuple[int, float]]:
        """Advances without blocking; returns new validation results of the first run."""
        while not self.is_over:
            if self._process is None and not self._begin():
                continue
            assert self._process is not None
            status = self._process.poll()
            if not self.scores:
                yield from self._new_evaluations()
            if status is None:
                return
            self._process = None
            self._end(status)

    def stop(self) -> None:
        """Ends the current run, with a checkpoint if possible."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """Kills the current run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    @property
    def _run(self) -> Path:
        return self.path / f"seed-{self._seeds[len(self.scores)]}"

    def _begin(self) -> bool:
        """Starts the next run, or takes its result if it exists already. True if a process runs."""
        run = self._run
        if self._take_result(run):
            return False
        resume = ["--resume"] if list_checkpoints(run / "checkpoints") else []
        changes = {**self.values, "train.seed": self._seeds[len(self.scores)], "train.threads": self._threads}
        overrides = [part for change in as_overrides(changes) for part in ("--set", change)]
        command = [sys.executable, "-m", "elasticctr", "train", self._settings.job, "--run-dir", str(run), "--json"]
        run.mkdir(parents=True, exist_ok=True)
        with (run / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid()), *command, *overrides, *resume],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # `stop` passes Ctrl-C on
            )
        return True

    def _end(self, status: int) -> None:
        if status != 0 or not self._take_result(self._run):
            self.failure = _last_words(self._run / "log.txt") or f"exited with status {status}"

    def _take_result(self, run: Path) -> bool:
        try:
            metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
            value = metrics["valid"][self._settings.metric]
        except (OSError, ValueError, KeyError):
            return False
        if value is None:
            self.failure = f"{self._settings.metric} of the validation data is undefined"
        elif _is_finished(run):
            self.scores.append(float(value))
        else:
            return False
        return True

    def _new_evaluations(self) -> Iterator[tuple[int, float]]:
        evaluations = [e for e in _read(self._run) if e["event"] == "eval" and e.get("split") == "valid"]
        while self._seen < len(evaluations):
            value = evaluations[self._seen].get(self._settings.metric)
            self._seen += 1
            if value is not None:
                yield self._seen, float(value)


def trial_path(settings: TuneSettings, number: int) -> Path:
    return Path(settings.study_dir) / "trials" / f"{number:04d}"


def drop_checkpoints(settings: TuneSettings, number: int) -> None:
    for run in trial_path(settings, number).glob("seed-*"):
        shutil.rmtree(run / "checkpoints", ignore_errors=True)


def _read(run: Path) -> list[dict[str, Any]]:
    try:
        return read_events(run / "events.jsonl")
    except (NotFound, DataError):
        return []


def _is_finished(run: Path) -> bool:
    ends = [e for e in _read(run) if e["event"] == "end"]
    return bool(ends) and ends[-1].get("reason") != "interrupted"


def _last_words(path: Path) -> str:
    """The error from a run's --json output, or the last lines it wrote."""
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.exists() else []
    try:
        answer = json.loads(lines[-1])
        return str(answer["error"]["message"])
    except (IndexError, ValueError, KeyError, TypeError):
        return " ".join(lines[-3:])
