"""Rows pooled and gradients summed without a table, against the table's own pull and push."""

from __future__ import annotations

import numpy as np
import pytest

from elasticctr import _native
from elasticctr.errors import FailedPrecondition
from elasticctr.table import AdagradSettings, SegmentSettings, SgdSettings, SlotTarget, Table, TableSettings

DIM = 5
SEGMENTS = (
    SegmentSettings(name="linear", dim=1, optimizer=SgdSettings(learning_rate=1.0)),
    SegmentSettings(name="embedding", dim=DIM, optimizer=AdagradSettings()),
)


def make(targets: list[SlotTarget]) -> tuple[Table, _native.Layout, _native.Lookup]:
    random = np.random.default_rng(7)
    table = Table(TableSettings(name="t", segments=SEGMENTS))
    layout = table.layout(targets)
    sizes = random.integers(0, 5, (2, 40))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    lookup = layout.lookup(random.integers(0, 150, offsets[-1]).astype(np.uint64), offsets, 40)
    table.find(lookup, insert=True)
    return table, layout, lookup


POOLED = [SlotTarget(0, {"linear": 0, "embedding": 2}), SlotTarget(1, {"linear": 1, "embedding": 7}, "mean")]
WITH_SEQUENCE = [POOLED[0], SlotTarget(1, {"embedding": 0}, "last", target=1, length=2)]


@pytest.mark.parametrize("targets", [POOLED, WITH_SEQUENCE], ids=["pooled", "sequence"])
def test_pool_rows_writes_what_pull_writes(targets: list[SlotTarget]) -> None:
    table, layout, lookup = make(targets)
    shapes = [(40, 12), (40, 2, DIM)][: layout.targets]
    pulled, pooled = ([np.zeros(shape, np.float32) for shape in shapes] for _ in range(2))
    table.pull(lookup, layout, pulled)
    _native.pool_rows(lookup, layout, table.get(lookup.feasigns).weights, pooled)
    for ours, theirs in zip(pooled, pulled, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert np.abs(ours).max() > 0


@pytest.mark.parametrize("targets", [POOLED, WITH_SEQUENCE], ids=["pooled", "sequence"])
def test_sum_gradients_are_the_steps_of_push(targets: list[SlotTarget]) -> None:
    table, layout, lookup = make(targets)
    random = np.random.default_rng(8)
    gradients = [random.normal(size=s).astype(np.float32) for s in [(40, 12), (40, 2, DIM)][: layout.targets]]
    clicks, shows = random.integers(0, 2, 40).astype(np.float32), random.integers(1, 4, 40).astype(np.float32)
    summed = _native.sum_gradients(lookup, layout, gradients, clicks, shows)
    assert summed.is_finite
    before = table.get(summed.feasigns)
    table.push(lookup, layout, gradients, clicks, shows)
    after = table.get(summed.feasigns)
    # The linear weights step by plain SGD with a rate of 1, so a step is the gradient.
    np.testing.assert_allclose(before.weights[:, 0] - after.weights[:, 0], summed.gradients[:, 0], atol=2e-6)
    np.testing.assert_array_equal(after.shows, summed.shows)
    np.testing.assert_array_equal(after.clicks, summed.clicks)
    if targets is WITH_SEQUENCE:
        assert summed.masks is not None
        stepped = (before.weights[:, 1:] != after.weights[:, 1:]).any(axis=1)
        np.testing.assert_array_equal(stepped, summed.masks & np.uint64(2) != 0)
        assert not stepped.all()
    else:
        assert summed.masks is None


def test_gradients_that_are_not_finite_are_told() -> None:
    _, layout, lookup = make(POOLED)
    gradients = np.zeros((40, 12), np.float32)
    gradients[:, 7] = np.inf
    assert not _native.sum_gradients(lookup, layout, [gradients]).is_finite


def test_rows_that_do_not_fit_the_lookup_are_refused() -> None:
    _, layout, lookup = make(POOLED)
    out = [np.zeros((40, 12), np.float32)]
    with pytest.raises(FailedPrecondition, match="rows for a lookup"):
        _native.pool_rows(lookup, layout, np.zeros((lookup.distinct + 1, DIM + 1), np.float32), out)
    with pytest.raises(FailedPrecondition, match="weights"):
        _native.pool_rows(lookup, layout, np.zeros((lookup.distinct, DIM), np.float32), out)


@pytest.mark.parametrize("shards", [1, 3, 4096])
def test_shards_of_many_feasigns(shards: int) -> None:
    feasigns = np.array([0, 1, 2**63, 2**64 - 1, 12345], np.uint64)
    assert _native.shards_of(feasigns, shards).tolist() == [_native.shard_of(int(f), shards) for f in feasigns]
