"""The files of a run and who writes them. docs/run-directory.md lists them for readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from elasticctr.config import load_yaml, parse_settings
from elasticctr.errors import AlreadyExists, DataError, InternalError, NotFound
from elasticctr.obs.environment import capture_environment
from elasticctr.storage.atomic import write_atomic
from elasticctr.train.checkpoint import MANIFEST, list_checkpoints
from elasticctr.train.events import plain
from elasticctr.train.job import Job


class RunDirectory:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.job = self.path / "job.yaml"
        self.environment = self.path / "environment.json"
        self.events = self.path / "events.jsonl"
        self.metrics = self.path / "metrics.json"
        self.explained = self.path / "explain.json"
        self.checkpoints = self.path / "checkpoints"

    @classmethod
    def of(cls, run: Path) -> RunDirectory:
        """The run directory that `run` is, or that the checkpoint `run` lies in."""
        return cls(run.parent.parent if (run / MANIFEST).exists() else run)

    @property
    def is_used(self) -> bool:
        """Whether there is something to lose. A run that failed before its first checkpoint left nothing."""
        return self.metrics.exists() or bool(list_checkpoints(self.checkpoints))

    def begin(self, job: Job, *, resume: bool) -> None:
        """Makes the directory and notes what is run where. Refuses to mix two runs."""
        if self.is_used and not resume:
            raise AlreadyExists(
                f"{self.path}: holds a run already; continue it with --resume, or name another directory with --run-dir"
            )
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            write_atomic(self.job, yaml.safe_dump(job.model_dump(mode="json", by_alias=True), sort_keys=False).encode())
            write_atomic(self.environment, json.dumps(capture_environment(), indent=1).encode())
        except OSError as e:
            raise InternalError(f"{self.path}: the run directory cannot be written: {e.strerror or e}") from e

    def load_job(self) -> Job:
        if not self.job.exists():
            raise NotFound(f"{self.path}: is not a run directory (no job.yaml)")
        return parse_settings(Job, load_yaml(self.job), str(self.job))

    def write_metrics(self, metrics: dict[str, Any]) -> None:
        write_atomic(self.metrics, json.dumps(metrics, indent=1).encode())

    def write_explained(self, found: dict[str, Any]) -> None:
        write_atomic(self.explained, json.dumps(plain(found), indent=1).encode())

    def add_metrics(self, split: str, metrics: dict[str, Any]) -> None:
        """Keeps what an evaluation found beside the metrics of training, in place of an earlier one of that name."""
        try:
            found = json.loads(self.metrics.read_text(encoding="utf-8")) if self.metrics.exists() else {}
            self.write_metrics({**found, split: plain(metrics)})
        except (ValueError, TypeError) as e:
            raise DataError(f"not valid JSON ({e}); remove the file to start afresh", self.metrics) from None
