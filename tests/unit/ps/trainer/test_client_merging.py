"""Batches merged before a push count as one batch."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.ps.pservers import LocalPservers
from tests.unit.ps.trainer.remote_steps import DIM, SAMPLES, Model, check_rows

from elasticctr.ps.trainer.client import Merger, PushHead, PushKind
from elasticctr.table import SlotTarget, Table


@pytest.mark.parametrize("is_mean", [True, False])
def test_a_merger_makes_one_batch_of_several(pservers: LocalPservers, tables: list[Table], is_mean: bool) -> None:
    client = pservers.client()
    table = tables[0]
    layout = table.layout([SlotTarget(0, {"linear": 0, "embedding": 1})])
    rng = np.random.default_rng(0)
    merger = client.merger(is_mean=is_mean)
    other = tables[1].layout([])
    sums: dict[int, NDArray[np.float64]] = {}
    weights = [20, 60]
    dense = np.zeros(50)
    for weight in weights:
        values = rng.integers(0, 30, weight).astype(np.uint64)
        lookup = layout.lookup(values, np.arange(weight + 1, dtype=np.int32), weight)
        nothing = other.lookup(values, np.arange(weight + 1, dtype=np.int32), weight)
        gradient = rng.normal(size=(weight, 1 + DIM)).astype(np.float32)
        dense_gradient = rng.normal(size=50).astype(np.float32)
        assert merger.add(
            [lookup, nothing],
            [layout, other],
            [[gradient], []],
            dense_gradient,
            np.ones(weight, np.float32),
            weight=weight,
        )
        share = weight / sum(weights) if is_mean else 1.0
        dense += share * dense_gradient
        for value, row in zip(values, gradient, strict=True):
            sums.setdefault(int(value), np.zeros(1 + DIM))
            sums[int(value)] += share * row
    bad = np.full((2, 1 + DIM), np.inf, dtype=np.float32)
    lookup = layout.lookup(np.array([1, 2], np.uint64), np.arange(3, dtype=np.int32), 2)
    nothing = other.lookup(np.array([1, 2], np.uint64), np.arange(3, dtype=np.int32), 2)
    assert not merger.add([lookup, nothing], [layout, other], [[bad], []], weight=2)
    assert (merger.batches, merger.weight) == (3, 80)
    # SGD-free check: deltas add what was merged to rows as they are.
    keys = np.array(sorted(sums), dtype=np.uint64)
    wanted_lookup = layout.lookup(keys, np.arange(len(keys) + 1, dtype=np.int32), len(keys))
    nothing = other.lookup(keys, np.arange(len(keys) + 1, dtype=np.int32), len(keys))
    before = client.start_pull([wanted_lookup, nothing], insert=True).rows(0).copy()
    client.set_dense(np.zeros(50, dtype=np.float32))
    given = PushHead(chunk=1, from_batch=0, to_batch=3, weight=merger.weight, kind=PushKind.deltas)
    client.push_merged(given, merger)
    merger.clear()
    client.wait_pushes()
    after = client.start_pull([wanted_lookup, nothing], insert=False).rows(0)
    np.testing.assert_allclose(after - before, np.array([sums[int(k)] for k in keys]), atol=1e-5)
    got = np.zeros(50, dtype=np.float32)
    client.pull_dense(got)
    np.testing.assert_allclose(got, dense, atol=1e-5)
    assert merger.batches == 0 and isinstance(merger, Merger)


def test_one_merged_batch_is_that_batch(pservers: LocalPservers, tables: list[Table], model: Model) -> None:
    client = pservers.client()
    merger = client.merger()
    batch = model.batch(0)
    client.start_pull(batch.lookups, insert=True).wait(60_000)
    for t, table in enumerate(tables):
        table.find(batch.lookups[t], insert=True)
        table.push(batch.lookups[t], model.layouts[t], batch.gradients[t], batch.clicks, batch.shows)
    assert merger.add(batch.lookups, model.layouts, batch.gradients, None, batch.clicks, batch.shows, weight=SAMPLES)
    client.push_merged(PushHead(chunk=9, from_batch=0, to_batch=1, weight=SAMPLES), merger)
    client.wait_pushes()
    check_rows(client, model, tables, range(1))
