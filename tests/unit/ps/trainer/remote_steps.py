"""Batches of two tables, and the same step through a client and through the tables themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticctr.ps.trainer.client import PsClient, PushHead
from elasticctr.table import (
    AdamSettings,
    AdmissionSettings,
    FtrlSettings,
    Layout,
    Lookup,
    SegmentSettings,
    SgdSettings,
    SlotTarget,
    Table,
    TableSettings,
)

SAMPLES, SLOTS, DIM = 60, 3, 4
TABLES = (
    TableSettings(
        name="main",
        segments=(
            SegmentSettings(name="linear", dim=1, optimizer=FtrlSettings()),
            SegmentSettings(name="embedding", dim=DIM, optimizer=AdamSettings()),
        ),
    ),
    TableSettings(
        name="rare",
        segments=(SegmentSettings(name="embedding", dim=2, optimizer=SgdSettings()),),
        admission=AdmissionSettings(count=2),
    ),
)


@dataclass
class Batch:
    lookups: list[Lookup]
    gradients: list[list[NDArray[np.float32]]]
    clicks: NDArray[np.float32]
    shows: NDArray[np.float32]


class Model:
    """Layouts over two tables: sums, means, a slot without its linear weight, a sequence."""

    def __init__(self, tables: list[Table]) -> None:
        self.layouts: list[Layout] = [
            tables[0].layout(
                [
                    SlotTarget(0, {"linear": 0, "embedding": 2}),
                    SlotTarget(1, {"embedding": 2 + DIM}, "mean"),
                    SlotTarget(2, {"embedding": 0}, "last", 1, 2),
                ]
            ),
            tables[1].layout([SlotTarget(2, {"embedding": 2 + 2 * DIM})]),
        ]

    @staticmethod
    def arrays() -> list[list[NDArray[np.float32]]]:
        flat = np.zeros((SAMPLES, 4 + 2 * DIM), dtype=np.float32)
        return [[flat, np.zeros((SAMPLES, 2, DIM), dtype=np.float32)], [flat]]

    def batch(self, seed: int) -> Batch:
        rng = np.random.default_rng(seed)
        lengths = rng.integers(0, 4, SLOTS * SAMPLES)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        values = rng.integers(0, 150, offsets[-1]).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        gradients = self.arrays()
        for array in (*gradients[0], gradients[1][0]):
            array[:] = rng.normal(size=array.shape).astype(np.float32)
        return Batch(
            [layout.lookup(values, offsets, SAMPLES) for layout in self.layouts],
            gradients,
            rng.integers(0, 2, SAMPLES).astype(np.float32),
            rng.integers(1, 5, SAMPLES).astype(np.float32),
        )


def head(step: int, chunk: int = 9, **more: object) -> PushHead:
    return PushHead(chunk=chunk, from_batch=step, to_batch=step + 1, weight=SAMPLES, now=step, **more)  # type: ignore[arg-type]


def step_local(tables: list[Table], model: Model, batch: Batch, step: int) -> list[list[NDArray[np.float32]]]:
    out = model.arrays()
    for t, table in enumerate(tables):
        table.find(batch.lookups[t], insert=True)
        table.pull(batch.lookups[t], model.layouts[t], out[t])
    for t, table in enumerate(tables):
        table.push(
            batch.lookups[t],
            model.layouts[t],
            batch.gradients[t],
            batch.clicks,
            batch.shows,
            now=step,
            rate_scale=0.5,
            gradient_scale=2.0,
        )
    return out


def push(client: PsClient, model: Model, batch: Batch, given: PushHead) -> None:
    given.rate_scale = 0.5
    client.push(
        given,
        batch.lookups,
        model.layouts,
        batch.gradients,
        None,
        batch.clicks,
        batch.shows,
        gradient_scale=2.0,
    )


def check_rows(client: PsClient, model: Model, tables: list[Table], seeds: range) -> None:
    """Everything the batches touched is the same on the pservers as in the tables."""
    for seed in seeds:
        batch = model.batch(seed)
        fetch = client.start_pull(batch.lookups, insert=False)
        for t, table in enumerate(tables):
            np.testing.assert_array_equal(fetch.rows(t), table.get(batch.lookups[t].feasigns).weights)
