"""Batches taken apart and put together again, against plain Python lists."""

from __future__ import annotations

import numpy as np
import pytest

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.data.schema import DenseSlot, Schema, SparseSlot
from elasticctr.errors import Corruption, FailedPrecondition

SCHEMA = Schema(slots=(DenseSlot(name="d", dim=2), SparseSlot(name="a"), SparseSlot(name="b"), SparseSlot(name="c")))


def make_batch(samples: list[list[list[int]]], first: int = 0) -> Batch:
    """A batch of `samples`: per sample, per slot, its values."""
    n = len(samples)
    values: list[int] = []
    offsets = [0]
    if n:
        for slot in range(3):
            for sample in samples:
                values += sample[slot]
                offsets.append(len(values))
    index = np.arange(first, first + n, dtype=np.float32)
    return Batch(
        SCHEMA,
        index[:, None],
        np.stack([index, -index], 1),
        np.array(values, np.uint64),
        np.array(offsets, np.int32),
        index + 0.5,
        index + 1,
    )


def read_back(batch: Batch) -> list[list[list[int]]]:
    if len(batch) == 0:
        return []
    slots = [batch.slot(s) for s in range(3)]
    return [[v[o[i] : o[i + 1]].tolist() for v, o in slots] for i in range(len(batch))]


def random_samples(rng: np.random.Generator, n: int) -> list[list[list[int]]]:
    return [[rng.integers(0, 2**64, rng.integers(0, 4), dtype=np.uint64).tolist() for _ in range(3)] for _ in range(n)]


@pytest.mark.parametrize("n", [1, 2, 17])
def test_take(n: int) -> None:
    rng = np.random.default_rng(n)
    samples = random_samples(rng, n)
    rows = rng.integers(0, n, 2 * n)
    taken = make_batch(samples).take(rows)
    assert read_back(taken) == [samples[r] for r in rows]
    assert taken.labels[:, 0].tolist() == rows.tolist()
    assert taken.dense[:, 1].tolist() == (-rows).tolist()
    assert taken.weights.tolist() == (rows + 0.5).tolist()
    assert taken.shows.tolist() == (rows + 1.0).tolist()


@pytest.mark.parametrize(("start", "stop"), [(0, 9), (0, 4), (3, 7), (4, 100), (5, 5), (7, 3), (9, 12), (-2, 3)])
def test_slice(start: int, stop: int) -> None:
    samples = random_samples(np.random.default_rng(3), 9)
    part = make_batch(samples).slice(start, stop)
    expected = samples[max(start, 0) : max(stop, start, 0)]
    assert read_back(part) == expected
    assert len(part.labels) == len(part.dense) == len(part.weights) == len(part.shows) == len(expected)
    assert part.offsets.tolist()[0] == 0
    assert len(part.offsets) == 3 * len(expected) + 1


@pytest.mark.parametrize("sizes", [[1], [3, 4], [0, 2, 0, 5], [0, 0], [1, 1, 1]])
def test_concat(sizes: list[int]) -> None:
    rng = np.random.default_rng(7)
    parts = [random_samples(rng, n) for n in sizes]
    joined = Batch.concat([make_batch(part) for part in parts])
    assert read_back(joined) == [sample for part in parts for sample in part]
    assert len(joined) == sum(sizes)


def test_slices_put_together_are_the_batch() -> None:
    samples = random_samples(np.random.default_rng(11), 20)
    batch = make_batch(samples)
    joined = Batch.concat([batch.slice(i, i + 3) for i in range(0, 20, 3)])
    assert joined.values.tolist() == batch.values.tolist()
    assert joined.offsets.tolist() == batch.offsets.tolist()


def test_take_of_nothing() -> None:
    taken = make_batch(random_samples(np.random.default_rng(0), 3)).take(np.array([], np.int64))
    assert len(taken) == 0
    assert taken.offsets.tolist() == [0]


@pytest.mark.parametrize("row", [-1, 3, 2**40])
def test_row_that_is_not_there(row: int) -> None:
    batch = make_batch(random_samples(np.random.default_rng(0), 3))
    with pytest.raises(FailedPrecondition, match="batch of 3"):
        _native.take_bags(batch.values, batch.offsets, 3, np.array([row]))


@pytest.mark.parametrize(
    ("offsets", "n"), [([0, 2, 1], 1), ([0, 1, 9], 1), ([0, 1, 2], 4), ([], 1), ([0, -1, 2], 1), ([0, 5, 1, 2], 3)]
)
def test_offsets_that_lie(offsets: list[int], n: int) -> None:
    values, bad = np.zeros(2, np.uint64), np.array(offsets, np.int32)
    with pytest.raises(Corruption):
        _native.take_bags(values, bad, n, np.arange(n))
    with pytest.raises(Corruption):
        _native.concat_bags([values], [bad], [n])
