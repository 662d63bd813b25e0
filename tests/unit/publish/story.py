"""A learner and its repository; what it trained and what was published."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.publish.learning import learn, make_job, make_samples

from elasticctr.publish import dense as dense_side
from elasticctr.publish.publisher import PublishedRun, Publisher
from elasticctr.train.learner import Learner
from elasticctr.versions import Manifest, Repository
from elasticctr.versions.sparse import read_part

Rows = dict[str, dict[int, bytes]]


class Story:
    """One learner and its repository."""

    def __init__(self, tmp_path: Path, template: dense_side.GraphTemplate, **options: Any) -> None:
        self.job = make_job(tmp_path)
        self.learner = Learner(self.job)
        self.random = np.random.default_rng(7)
        self.repository = Repository(str(tmp_path / "repo"))
        self.publisher = self.make_publisher(template, **options)
        self.batch = make_samples(self.job, self.random, 20)

    def make_publisher(self, template: dense_side.GraphTemplate, **options: Any) -> Publisher:
        publisher = Publisher(self.repository, "ctr", reuse_graph=True, **options)
        publisher._template = template
        return publisher

    def learn(self, steps: int = 3) -> None:
        learn(self.learner, self.job, self.random, steps)

    def publish(self, kind: Any = "auto", publisher: Publisher | None = None) -> Manifest:
        snapshot = PublishedRun(self.job.samples, self.batch, {}, {"step": 1}, self.learner.sparse.mark())
        return (publisher or self.publisher).publish(self.learner, snapshot, kind)

    def trained(self) -> Rows:
        return {
            table.settings.name: {
                feasign: weights.tobytes()
                for rows in table.rows()
                for feasign, weights in zip(rows.feasigns.tolist(), rows.weights, strict=True)
            }
            for table in self.learner.sparse.tables
        }

    def published(self, version: int) -> Rows:
        return read_chain(self.repository, self.repository.chain("ctr", version))


def read_chain(repository: Repository, chain: list[Manifest]) -> Rows:
    found: Rows = {name: {} for name in chain[-1].tables}
    for manifest in chain:
        for name, rows in found.items():
            for file in manifest.parts(name, "gone"):
                for feasigns, _ in read_part(repository, manifest, file):
                    for feasign in feasigns.tolist():
                        rows.pop(feasign, None)
            for file in manifest.parts(name):
                for feasigns, encoded in read_part(repository, manifest, file):
                    assert encoded is not None
                    rows |= {f: row.tobytes() for f, row in zip(feasigns.tolist(), encoded, strict=True)}
    return found


def make_old(path: Path) -> None:
    """Leftovers and old versions go only after the time of a lease."""
    for entry in path.rglob("*"):
        os.utime(entry, (1, 1))


def digest(rows: Rows) -> str:
    return hashlib.sha256(repr(sorted((t, sorted(r.items())) for t, r in rows.items())).encode()).hexdigest()
