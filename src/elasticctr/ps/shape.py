"""The size of what a job learns: its tables and the number of its dense parameters.

Only a model knows that, and models are torch modules. Roles that do without torch ask a child process once, and find
the answer in the run directory afterwards. `python -m elasticctr.ps.shape < job.json` is that child.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticctr.config import parse_settings
from elasticctr.errors import ConfigError, ElasticCTRError, InternalError
from elasticctr.ps.identity import job_identity
from elasticctr.storage.atomic import write_atomic
from elasticctr.table.settings import TableSettings
from elasticctr.train.job import Job

_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class JobShape:
    """Tables are numbered in this order; the dense vector is the learner's parameters one after the other."""

    tables: tuple[TableSettings, ...]
    dense_floats: int
    identity: dict[str, Any]  # of the learner, as checkpoints hold it

    def dump(self) -> dict[str, Any]:
        tables = [t.model_dump(mode="json") for t in self.tables]
        return {"tables": tables, "dense_floats": self.dense_floats, "identity": self.identity}

    @staticmethod
    def load(data: dict[str, Any]) -> JobShape:
        tables = tuple(parse_settings(TableSettings, t, "shape of the job") for t in data["tables"])
        return JobShape(tables, int(data["dense_floats"]), dict(data["identity"]))


def shape_of(job: Job) -> JobShape:
    """The shape of a job, without importing torch here."""
    kept = Path(job.run_dir) / f"shape-{job_identity(job).digest[:16]}.json"
    found = _find(kept)
    if found is not None:
        return found
    # Roles that start together ask at the same time: one of them is enough.
    with _alone(kept.with_suffix(".lock")):
        shape = _find(kept)
        if shape is None:
            shape = JobShape.load(json.loads(_ask_child(job)))
            _keep(kept, shape)
        return shape


def _find(kept: Path) -> JobShape | None:
    try:
        return JobShape.load(json.loads(kept.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, ConfigError):
        return None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """While this process has the lock, or cannot get it: on some file systems there is none."""
    with ExitStack() as stack:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(path.open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def measure(job: Job) -> JobShape:
    """The shape of a job, in this process. Imports torch."""
    from elasticctr.train.learner import Learner

    learner = Learner(job)
    return JobShape(tuple(t.settings for t in learner.sparse.tables), learner.dense_floats, learner.identity)


def _ask_child(job: Job) -> str:
    text = job.model_dump_json(by_alias=True)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "elasticctr.ps.shape"],
            input=text,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise InternalError(f"the process that measures the model did not answer: {e}") from e
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()[-1]
        raise ConfigError(f"the model of this job cannot be made: {reason}")
    return done.stdout.strip().splitlines()[-1]


def _keep(path: Path, shape: JobShape) -> None:
    with suppress(OSError, ElasticCTRError):  # measured again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(shape.dump(), indent=1).encode(), writer=str(os.getpid()))


def _main() -> int:
    try:
        shape = measure(parse_settings(Job, json.load(sys.stdin), "job"))
    except ElasticCTRError as e:
        sys.stderr.write(f"{e}\n")
        return e.exit_status
    sys.stdout.write(json.dumps(shape.dump()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
