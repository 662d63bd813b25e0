"""Samples for samples.json and for measuring what an encoding costs: real ones if the job's data can be read, otherwise
built from feasigns in the tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.schema import Schema
from elasticctr.errors import ElasticCTRError
from elasticctr.table import Table
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.reading import open_dataset
from elasticctr.versions.samples import make_batch

SAMPLE_COUNT = 48


def pick_samples(job: Job, learner: Learner) -> Batch:
    """A few dozen samples, including one without values and one whose feasigns have no rows."""
    real = next(read_samples(job, SAMPLE_COUNT, SAMPLE_COUNT), None)
    made = _make_samples(job.samples, learner, 2 if real is not None else SAMPLE_COUNT)
    return made if real is None else Batch.concat([real, made])


def read_samples(job: Job, count: int, batch_size: int, *, valid_only: bool = False) -> Iterator[Batch]:
    """Up to `count` samples of the validation, test or training data, whichever can be read first; possibly none."""
    for settings in (job.data.valid, job.data.test, None if valid_only else job.data.train):
        if settings is None:
            continue
        left = count
        try:
            plain = settings.model_copy(update={"shuffle_rows": 0, "prefetch": 0, "wait_s": 0.0})
            batches = open_dataset(plain, job.samples, require_label=valid_only).iterate(batch_size=batch_size)
            try:
                for batch in batches:
                    yield batch if len(batch) <= left else batch.slice(0, left)
                    left -= len(batch)
                    if left <= 0:
                        return
            finally:
                batches.close()
        except ElasticCTRError:
            # A model can be published long after its logs are gone.
            pass
        if left < count:
            return


def _make_samples(schema: Schema, learner: Learner, count: int) -> Batch:
    random = np.random.default_rng(0)
    known = {slot.slot.name: _some_feasigns(learner.sparse.tables[slot.table]) for slot in learner.plan.slots}
    slots = []
    for slot in schema.sparse:
        values: list[list[int]] = [[], random.integers(0, 1 << 64, 2, dtype=np.uint64).tolist()]
        for _ in range(count - 2):
            taken = int(random.integers(0, 4)) if len(known[slot.name]) else 0
            values.append(random.choice(known[slot.name], taken).tolist() if taken else [])
        slots.append([sample[: slot.max_values] for sample in values])
    return make_batch(schema, slots, random.random((count, schema.dense_dim), dtype=np.float32).tolist())


def _some_feasigns(table: Table) -> NDArray[np.uint64]:
    first: Any = next(table.rows(limit=1000), None)
    return np.zeros(0, dtype=np.uint64) if first is None else first.feasigns
