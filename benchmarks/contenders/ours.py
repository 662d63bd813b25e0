"""ElasticCTR: the classes of `elasticctr train`, used in the same way.

parsed   batches in memory
cache    a cached sample set, memory-mapped
text     slot text, parsed while training
All three go through the same reading ahead and the same learner; rows stay in the order of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from clicks import DENSE, DIM, LAYERS, LEARNING_RATE, SLOTS, Rows
from numpy.typing import NDArray
from worker import Order, Stack, serve

import elasticctr
from elasticctr.data.batch import Batch
from elasticctr.data.schema import DenseSlot, Schema, SparseSlot
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.reading import open_dataset, read_ahead

if TYPE_CHECKING:
    from elasticctr.train.reading import PreparedBatch

SCHEMA = Schema(
    slots=(
        DenseSlot(name="dense_feature", dim=DENSE),
        *(SparseSlot(name=str(slot + 1)) for slot in range(SLOTS)),
    )
)


class Ours(Stack):
    version = elasticctr.__version__
    # Long enough to use up what was read ahead between two windows: a queue that fills while the clock stands still
    # would give samples for free.
    warm_s = 1.5

    def __init__(self, order: Order, seed: int) -> None:
        self._job = _make_job(order, seed)
        self._learner = Learner(self._job)
        self._variant = order.variant

    def stream(self, rows: Rows, batch_size: int) -> Iterator[PreparedBatch]:
        if self._variant == "parsed":
            dataset: Any = Parsed([_make_batch(part) for part in rows.batches(batch_size)])
        else:
            dataset = open_dataset(self._job.data.train, SCHEMA)
        epoch = 0
        while True:
            yield from read_ahead(dataset, self._learner.look_up, batch_size=batch_size, epoch=epoch)
            epoch += 1

    def read_epoch(self, rows: Rows, batch_size: int) -> Iterator[PreparedBatch]:
        parsed: Any = Parsed([_make_batch(part) for part in rows.batches(batch_size)])
        return read_ahead(parsed, self._learner.look_up, batch_size=batch_size)

    def step(self, batch: PreparedBatch) -> None:
        self._learner.step(batch, 1.0)

    def predict(self, rows: Rows) -> NDArray[np.float32]:
        parsed: Any = Parsed([_make_batch(rows)])
        (batch,) = read_ahead(parsed, self._learner.look_up, batch_size=len(rows))
        logits = self._learner.predict(batch)
        return 1 / (1 + np.exp(-logits))


class Parsed:
    """The part of a dataset that reading ahead needs, over existing batches."""

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def iterate(
        self, batch_size: int, *, epoch: int = 0, start: dict[str, Any] | None = None, is_ahead: bool = True
    ) -> ParsedIterator:
        return ParsedIterator(self._batches)


class ParsedIterator(Iterator[Batch]):
    def __init__(self, batches: list[Batch]) -> None:
        self._rest = iter(batches)

    def __next__(self) -> Batch:
        return next(self._rest)

    def state(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


def _make_batch(rows: Rows) -> Batch:
    ones = np.ones(len(rows), np.float32)
    return Batch(
        SCHEMA,
        rows.labels[:, None].copy(),
        rows.dense.copy(),
        np.ascontiguousarray(rows.ids.T).reshape(-1).astype(np.uint64),
        np.arange(SLOTS * len(rows) + 1, dtype=np.int32),
        ones,
        ones,
    )


def _make_job(order: Order, seed: int) -> Job:
    cache: Path = order.folder / "cache"
    train = {"path": str(order.folder / "train")} | ({"cache": str(cache)} if order.variant == "cache" else {})
    return Job.model_validate(
        {
            "schema": SCHEMA,
            "data": {"train": train},
            "model": {"name": "wide_deep", "dim": DIM, "hidden": LAYERS},
            "dense": {"optimizer": "adam", "learning_rate": LEARNING_RATE},
            "sparse": {
                "optimizer": {"name": "adam", "learning_rate": LEARNING_RATE},
                "initializer": {"name": "uniform", "low": -0.05, "high": 0.05},
            },
            "train": {"batch_size": order.batch_size, "precision": order.precision, "seed": seed},
        }
    )


if __name__ == "__main__":
    serve(Ours)
