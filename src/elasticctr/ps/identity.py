"""What makes two processes part of the same job: pservers and the coordinator refuse any that differ in it.

It is taken from the job file alone, so that every role can say it without torch.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from elasticctr import __version__, _native
from elasticctr.train.job import Job


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a job, as text for people and as numbers for the wire."""

    text: str  # JSON

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def number(self) -> int:
        """The first 8 bytes of the digest: `table` in the header of every frame."""
        return int.from_bytes(hashlib.sha256(self.text.encode()).digest()[:8], "little")


def job_identity(job: Job) -> Identity:
    """Everything that decides what rows, gradients and chunks of this job mean to another process of it."""
    strategy = None if job.cluster is None else job.cluster.strategy
    parts = {
        "schema": job.samples.fingerprint(),
        "model": job.model.name,
        "options": job.model.options,
        "tables": job.sparse.model_dump(mode="json"),
        "dense": job.dense.model_dump(mode="json"),
        "loss": job.loss.model_dump(mode="json"),
        "strategy": strategy,
        "seed": job.train.seed,
        "batch_size": job.train.batch_size,
    }
    return Identity(json.dumps(parts, sort_keys=True, separators=(",", ":")))


def describe_difference(own: str, other: str) -> str:
    """Which parts of two identities differ, for this process' own log."""
    try:
        mine, theirs = json.loads(own), json.loads(other)
        names = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
    except (ValueError, AttributeError):
        return "one of them is not the identity of a job"
    shown = [f"{name}: {mine.get(name)!r:.100} and {theirs.get(name)!r:.100}" for name in names[:20]]
    return ", ".join(shown) or "nothing"


def build() -> str:
    """The version of the code and of the frames it speaks."""
    return f"{__version__}+wire{_native.WIRE_BUILD}"
