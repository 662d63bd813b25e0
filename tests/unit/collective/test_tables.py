"""Tables spread over ranks against one table, with everything that makes rows differ: masks, admission, counters, steps
that do not touch them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from elasticctr._native import Layout, Lookup
from elasticctr.collective.group import Group
from elasticctr.collective.tables import ShardedTables, Summed
from elasticctr.table import (
    AdagradSettings,
    AdamSettings,
    AdmissionSettings,
    SegmentSettings,
    SlotTarget,
    Table,
    TableSettings,
)
from elasticctr.table.remote import pool_rows, sum_gradients

SEGMENTS = (
    SegmentSettings(name="linear", dim=1, optimizer=AdagradSettings()),
    SegmentSettings(name="embedding", dim=3, optimizer=AdamSettings(l2=0.05, catch_up=50)),
)
POOLED = [SlotTarget(0, {"linear": 0, "embedding": 2}), SlotTarget(1, {"linear": 1, "embedding": 5}, "mean")]
WITH_SEQUENCE = [POOLED[0], SlotTarget(1, {"embedding": 0}, "last", target=1, length=2)]
SHAPES: dict[int, list[tuple[int, ...]]] = {1: [(8,)], 2: [(8,), (2, 3)]}


class Meeting:
    """What ranks that are threads pass each other."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=120)
        self.brought: list[Any] = [None] * size


class ThreadGroup:
    """A Group of threads of this process."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.rank, self.size = rank, len(meeting.brought)
        self._meeting = meeting

    def _swap(self, value: Any) -> list[Any]:
        self._meeting.brought[self.rank] = value
        self._meeting.barrier.wait()
        brought = list(self._meeting.brought)
        self._meeting.barrier.wait()
        return brought

    def exchange(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.stack([theirs[self.rank] for theirs in self._swap(values.copy())])

    def exchange_pieces(self, values: NDArray[Any], send: list[int], receive: list[int]) -> NDArray[Any]:
        pieces = self._swap(np.split(values.copy(), np.cumsum(send)[:-1]))
        got = [theirs[self.rank] for theirs in pieces]
        assert [len(piece) for piece in got] == list(receive)
        return np.concatenate(got)


def on_every_rank(size: int, work: Callable[[ThreadGroup], None]) -> None:
    meeting = Meeting(size)
    with ThreadPoolExecutor(size) as pool:
        for done in [pool.submit(work, ThreadGroup(meeting, rank)) for rank in range(size)]:
            done.result()


def make_table(**settings: Any) -> Table:
    return Table(TableSettings(name="t", segments=SEGMENTS, **settings))


def make_lookup(layout: Layout, seed: list[int], samples: int) -> tuple[Lookup, NDArray[np.uint64], NDArray[np.int64]]:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 4, (2, samples))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    values = random.integers(0, 60, offsets[-1]).astype(np.uint64)
    return layout.lookup(values, offsets, samples), values, sizes


def gradients_of(layout: Layout, seed: list[int], samples: int) -> list[NDArray[np.float32]]:
    random = np.random.default_rng([*seed, 1])
    return [random.normal(size=(samples, *shape)).astype(np.float32) for shape in SHAPES[layout.targets]]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("targets", [POOLED, WITH_SEQUENCE], ids=["pooled", "sequence"])
@pytest.mark.parametrize("count", [1, 3])
def test_ranks_are_one_table(size: int, targets: list[SlotTarget], count: int) -> None:
    """Rank 1 has no batch in step 2; the batch of rank 0 is left out of step 3."""
    admission = AdmissionSettings(count=count)
    whole, parts = make_table(admission=admission), [make_table(admission=admission) for _ in range(size)]
    layout = whole.layout(targets)
    has_masks = targets is WITH_SEQUENCE
    n = 20
    for step in range(5):
        present = [rank for rank in range(size) if not (step == 2 and rank == 1)]
        left_out = [step == 3 and rank == 0 and size > 1 for rank in range(size)]
        inputs: dict[int, list[NDArray[np.float32]]] = {}

        def work(
            group: ThreadGroup,
            step: int = step,
            present: list[int] = present,
            left_out: list[bool] = left_out,
            inputs: dict[int, list[NDArray[np.float32]]] = inputs,
        ) -> None:
            tables = ShardedTables(cast(Group, group), [parts[group.rank]], [has_masks])
            is_here = group.rank in present
            lookup = make_lookup(layout, [step, group.rank], n)[0]
            (rows,), notes = tables.pull([lookup] if is_here else None, (group.rank, 7), insert=True)
            assert notes.tolist() == [[rank, 7] for rank in range(size)]
            summed = None
            if is_here:
                pooled = [np.zeros((n, *shape), np.float32) for shape in SHAPES[layout.targets]]
                pool_rows(lookup, layout, rows, pooled)
                inputs[group.rank] = pooled
                clicks = np.ones(n, np.float32)
                found = sum_gradients(lookup, layout, gradients_of(layout, [step, group.rank], n), clicks)
                summed = [Summed(found.gradients, found.shows, found.clicks, found.masks)]
            tables.push(summed, left_out, scale=0.25, now=step, rate_scale=0.5)

        on_every_rank(size, work)

        made = {rank: make_lookup(layout, [step, rank], n) for rank in present}
        joined = _join(layout, [made[rank][1:] for rank in present])
        whole.find(joined, insert=True)
        expected = [np.zeros((n * len(present), *shape), np.float32) for shape in SHAPES[layout.targets]]
        whole.pull(joined, layout, expected)
        for a, b in zip(
            [np.concatenate(both) for both in zip(*[inputs[r] for r in present], strict=True)], expected, strict=True
        ):
            np.testing.assert_allclose(a, b, atol=2e-6)
        counted = [rank for rank in present if not left_out[rank]]
        joined = _join(layout, [made[rank][1:] for rank in counted])
        whole.find(joined, insert=False)
        gradients = [gradients_of(layout, [step, rank], n) for rank in counted]
        clicks = np.ones(n * len(counted), np.float32)
        both = [np.concatenate(arrays) for arrays in zip(*gradients, strict=True)]
        whole.push(joined, layout, both, clicks, now=step, rate_scale=0.5, gradient_scale=0.25)
    assert sum(len(part) for part in parts) == len(whole) > 0
    for part in parts:
        for rows in part.rows():
            found = whole.get(rows.feasigns)
            np.testing.assert_allclose(rows.weights, found.weights, atol=3e-6)
            np.testing.assert_array_equal(rows.shows, found.shows)
            np.testing.assert_array_equal(rows.last_seen, found.last_seen)


def _join(layout: Layout, batches: list[Any]) -> Lookup:
    """The lookup of several batches one after the other, slot by slot."""
    values: list[list[NDArray[np.uint64]]] = [[], []]
    for given, sizes in batches:
        first = int(sizes[0].sum())
        values[0].append(given[:first])
        values[1].append(given[first:])
    sizes = np.concatenate([sizes for _, sizes in batches], axis=1)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return layout.lookup(np.concatenate(values[0] + values[1]), offsets, sizes.shape[1])
