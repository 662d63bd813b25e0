"""The trainer of cube_swap.py: a real learner with a table of a million rows, 100,000 of which a step changes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elasticctr.cube.lookup import Lookup
from elasticctr.data.batch import Batch
from elasticctr.publish.publisher import PublishedRun, Publisher
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.reading import PreparedBatch

MODEL, SLOTS, SAMPLES, DIM = "ctr", 25, 4000, 9
BATCHES = 10


class Trainer:
    def __init__(self, repository: str) -> None:
        slots = [{"name": f"s{number}"} for number in range(SLOTS)]
        self._job = Job.model_validate(
            {
                "schema": {"format": "slot", "label": ["click"], "slots": slots},
                "data": {"train": {"path": "none"}},
                "model": {"name": "deepfm", "dim": DIM, "hidden": [64, 32]},
            }
        )
        self._learner = Learner(self._job)
        self._random = np.random.default_rng(0)
        # Batches share no feasigns, so a step changes exactly 100,000 rows.
        size = (BATCHES, SLOTS, SAMPLES)
        numbers = self._random.permutation(int(np.prod(size))).astype(np.uint64)
        self._feasigns = (numbers * np.uint64(0x9E3779B97F4A7C15)).reshape(size)
        self._publisher = Publisher(repository, MODEL, reuse_graph=True)
        (table,) = self._learner.sparse.tables
        self._rows = table
        self.table = f"{MODEL}/{table.settings.name}"
        for number in range(BATCHES):
            self._step(number)

    def push(self) -> tuple[int, int]:
        """Trains one step. Returns a feasign whose row it changed, and how many rows it changed."""
        number = int(self._random.integers(BATCHES))
        self._step(number)
        return int(self._feasigns[number, 0, 0]), SLOTS * SAMPLES

    def publish(self) -> int:
        samples = self._batch(np.ascontiguousarray(self._feasigns[0, :, :8]))
        snapshot = PublishedRun(self._job.samples, samples, {}, {}, self._learner.sparse.mark())
        return self._publisher.publish(self._learner, snapshot).version

    def check(self, feasign: int, answer: Lookup) -> None:
        """Checks that the served row is the trainer's."""
        own = self._rows.get(np.array([feasign], np.uint64)).weights
        if not np.array_equal(answer.rows, own):
            raise SystemExit(f"feasign {feasign}: served {answer.rows}, trained {own}")

    def _step(self, number: int) -> None:
        batch = self._batch(self._feasigns[number])
        self._learner.step(PreparedBatch(batch, self._learner.look_up(batch), {}))

    def _batch(self, feasigns: NDArray[np.uint64]) -> Batch:
        """One feasign per slot and sample; every other sample is a click."""
        count = feasigns.shape[1]
        ones = np.ones(count, np.float32)
        offsets = np.arange(feasigns.size + 1, dtype=np.int32)
        labels = (np.arange(count, dtype=np.float32) % 2)[:, None]
        dense = np.zeros((count, 0), np.float32)
        return Batch(self._job.samples, labels, dense, feasigns.reshape(-1), offsets, ones, ones)
