"""Adam with catch_up equals torch.optim.Adam on a dense embedding, however and whenever rows are read."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elasticctr.errors import FailedPrecondition
from elasticctr.table import AdamSettings, NormalSettings, SegmentSettings, SlotTarget, Table, TableSettings

DIM = 9
FEASIGNS = np.arange(30, dtype=np.uint64) * np.uint64(2**59 + 17)


def make_table(**changes: Any) -> Table:
    optimizer = AdamSettings(**{"learning_rate": 0.01, "l2": 0.05, "catch_up": 200, **changes})
    segment = SegmentSettings(name="w", dim=DIM, optimizer=optimizer, initializer=NormalSettings(std=0.3))
    table = Table(TableSettings(name="t", segments=(segment,), seed=5))
    table.insert_rows(FEASIGNS)
    return table


def batch_of(step: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The later a feasign, the fewer steps touch it; FEASIGNS[29] none. Some stand twice in a batch."""
    rng = np.random.default_rng(step)
    which = np.flatnonzero(rng.random(29) < 1 / np.arange(1, 30))
    which = np.concatenate([which, which[:2]])
    return which, rng.normal(size=(len(which), DIM)).astype(np.float32), 1.0 if step < 40 else 0.1


def train(table: Table, steps: Iterable[int]) -> None:
    layout = table.layout([SlotTarget(0, {"w": 0})])
    for step in steps:
        which, gradient, scale = batch_of(step)
        lookup = layout.lookup(FEASIGNS[which], np.arange(len(which) + 1, dtype=np.int32), len(which))
        table.find(lookup, insert=True)
        table.push(lookup, layout, [gradient], rate_scale=scale)


def read_by_lookup(table: Table) -> np.ndarray:
    """As evaluation does."""
    layout = table.layout([SlotTarget(0, {"w": 0})])
    lookup = layout.lookup(FEASIGNS, np.arange(len(FEASIGNS) + 1, dtype=np.int32), len(FEASIGNS))
    table.find(lookup)
    weights = np.zeros((len(FEASIGNS), DIM), np.float32)
    table.pull(lookup, layout, [weights])
    return weights


def read_all(table: Table) -> np.ndarray:
    rows = next(table.rows())
    return rows.weights[[int(np.flatnonzero(rows.feasigns == feasign)[0]) for feasign in FEASIGNS]]


READERS = {
    "get": lambda table: table.get(FEASIGNS).weights,
    "pull_rows": lambda table: table.pull_rows(FEASIGNS),
    "insert_rows": lambda table: table.insert_rows(FEASIGNS),
    "lookup": read_by_lookup,
    "rows": read_all,
}


@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize("reader", READERS)
def test_agrees_with_torch_adam_of_all_rows(reader: str, l2: float) -> None:
    table = make_table(l2=l2)
    weights = torch.tensor(table.get(FEASIGNS).weights, requires_grad=True)
    before = weights.detach().numpy().copy()
    optimizer = torch.optim.Adam([weights], lr=0.01, weight_decay=l2)
    for step in range(80):
        which, gradient, scale = batch_of(step)
        train(table, [step])
        optimizer.param_groups[0]["lr"] = 0.01 * scale
        weights.grad = torch.zeros_like(weights).index_add_(0, torch.tensor(which), torch.tensor(gradient))
        optimizer.step()
        if step % 20 == 19:
            np.testing.assert_allclose(READERS[reader](table), weights.detach().numpy(), rtol=1e-5, atol=2e-6)
    assert (before[29] != weights.detach().numpy()[29]).any() == (l2 > 0)


def test_without_it_untouched_rows_stay() -> None:
    table = make_table(catch_up=0)
    before = table.get(FEASIGNS).weights
    train(table, range(20))
    assert table.get(FEASIGNS).weights[29].tobytes() == before[29].tobytes()


def test_reading_changes_no_later_step() -> None:
    quiet, read = make_table(), make_table()
    for step in range(60):
        train(quiet, [step])
        train(read, [step])
        read_by_lookup(read)
        read.get(FEASIGNS)
    assert quiet.get(FEASIGNS).weights.tobytes() == read.get(FEASIGNS).weights.tobytes()


def test_a_loaded_table_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole = make_table()
    train(whole, range(50))
    whole.save(tmp_path / "table")
    loaded, parts = make_table(), make_table()
    loaded.load(tmp_path / "table")
    parts.reset()
    parts.load_part(tmp_path / "table", 0, 2000)
    parts.load_part(tmp_path / "table", 2000)
    for table in (loaded, parts):
        assert table.stats().steps == 50
        train(table, range(50, 80))
    train(whole, range(50, 80))
    whole.save(tmp_path / "whole")
    for table in (loaded, parts):
        assert table.get(FEASIGNS).weights.tobytes() == whole.get(FEASIGNS).weights.tobytes()
    loaded.save(tmp_path / "loaded")
    assert (tmp_path / "loaded").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_row_that_missed_more_steps_makes_up_for_no_more() -> None:
    table = make_table(catch_up=5, beta1=0.5, beta2=0.5)  # soon forgotten, so that all steps have the same rate
    layout = table.layout([SlotTarget(0, {"w": 0})])
    nothing = layout.lookup(np.zeros(0, np.uint64), np.zeros(2, np.int32), 1)

    def miss(steps: int) -> np.ndarray:
        for _ in range(steps):
            table.find(nothing)
            table.push(nothing, layout, [np.zeros((1, DIM), np.float32)])
        return table.get(FEASIGNS).weights[0]

    miss(100)
    train(table, [0])
    assert 0 in batch_of(0)[0]
    assert miss(4).tobytes() != miss(1).tobytes()
    after_five = miss(0)
    assert miss(50).tobytes() == after_five.tobytes()


def test_its_files_are_not_those_of_adam(tmp_path: Path) -> None:
    table = make_table()
    table.save(tmp_path / "moving")
    still = make_table(catch_up=0)
    still.save(tmp_path / "still")
    with pytest.raises(FailedPrecondition, match="catch_up"):
        still.load(tmp_path / "moving")
    with pytest.raises(FailedPrecondition, match="catch_up"):
        table.load(tmp_path / "still")
    other = make_table(catch_up=7)  # how many steps may change
    other.load(tmp_path / "moving")
    assert other.get(FEASIGNS).weights.tobytes() == table.get(FEASIGNS).weights.tobytes()


def test_costs_four_bytes_a_row_and_only_where_asked_for() -> None:
    moving, still = make_table().stats(), make_table(catch_up=0).stats()
    assert moving.payload_bytes - still.payload_bytes == 4 * len(FEASIGNS)
    assert still.payload_bytes == len(FEASIGNS) * 4 * 3 * DIM


def test_needs_an_epsilon() -> None:
    with pytest.raises(ValueError, match="epsilon"):
        AdamSettings(catch_up=10, epsilon=0.0)
