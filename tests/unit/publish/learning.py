"""A learner small enough to publish often, and random samples for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elasticctr.data.batch import Batch
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.reading import PreparedBatch
from elasticctr.versions.samples import make_batch

SLOTS: list[dict[str, Any]] = [
    {"name": "user", "values": "string"},
    {"name": "tags", "values": "string", "pooling": "mean", "max_values": 5},
    {"name": "ad", "values": "string", "table": "ads"},
    {"kind": "dense", "name": "x", "dim": 2},
]
SEQUENCE: dict[str, Any] = {"name": "clicked", "table": "ads", "pooling": "none", "max_values": 3}


def make_job(tmp_path: Path, model: str = "deepfm", slots: list[dict[str, Any]] | None = None, **more: Any) -> Job:
    options: dict[str, Any] = {"lr": {}, "fm": {"dim": 4}}.get(model, {"dim": 4, "hidden": [8, 4]})
    return Job.model_validate(
        {
            "run_dir": str(tmp_path / "run"),
            "schema": {"slots": slots or SLOTS},
            "data": {"train": str(tmp_path / "none")},
            "model": {"name": model, **options},
            "train": {"threads": 1},
            **more,
        }
    )


def make_samples(job: Job, random: np.random.Generator, count: int = 64, vocabulary: int = 500) -> Batch:
    def values(longest: int) -> list[int]:
        size = int(random.integers(0, longest + 1))
        return (random.integers(0, vocabulary, size).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).tolist()

    schema = job.samples
    slots = [[values(min(slot.max_values, 4)) for _ in range(count)] for slot in schema.sparse]
    batch = make_batch(schema, slots, random.normal(size=(count, schema.dense_dim)).tolist())
    batch.labels[:] = random.integers(0, 2, batch.labels.shape)
    return batch


def learn(learner: Learner, job: Job, random: np.random.Generator, steps: int = 3) -> None:
    for _ in range(steps):
        batch = make_samples(job, random)
        learner.step(PreparedBatch(batch, learner.look_up(batch), {}))
