"""Rows by feasign: what a shard does with summed gradients from trainers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticctr.errors import FailedPrecondition
from elasticctr.table import AdmissionSettings, SegmentSettings, SgdSettings, Table, TableSettings

SEGMENTS = (
    SegmentSettings(name="linear", dim=1, optimizer=SgdSettings(learning_rate=1.0)),
    SegmentSettings(name="embedding", dim=2, optimizer=SgdSettings(learning_rate=1.0)),
)
FEASIGNS = np.array([5, 2**64 - 1, 9], np.uint64)


def make(**settings: object) -> Table:
    return Table(TableSettings(name="t", segments=SEGMENTS, **settings))


def test_rows_are_made_pulled_and_stepped() -> None:
    table = make()
    assert not table.pull_rows(FEASIGNS).any() and len(table) == 0
    made = table.insert_rows(FEASIGNS)
    np.testing.assert_array_equal(table.pull_rows(FEASIGNS[::-1]), made[::-1])
    gradients = np.arange(9, dtype=np.float32).reshape(3, 3)
    ones = np.ones(3, np.float32)
    masks = np.array([3, 1, 2], np.uint64)
    table.push_rows(FEASIGNS, gradients, 2 * ones, ones, masks, now=7, rate_scale=0.5, gradient_scale=0.1)
    stepped = gradients * np.array([[1, 1, 1], [1, 0, 0], [0, 1, 1]], np.float32)
    np.testing.assert_allclose(made - table.pull_rows(FEASIGNS), 0.05 * stepped, atol=1e-6)
    found = table.get(FEASIGNS)
    assert (found.shows.tolist(), found.clicks.tolist(), found.last_seen.tolist()) == ([2.0] * 3, [1.0] * 3, [7] * 3)


def test_deltas_are_added_as_they_are() -> None:
    table = make()
    made = table.insert_rows(FEASIGNS[:2])
    table.add_rows(FEASIGNS, np.full((3, 3), 0.25, np.float32))
    np.testing.assert_allclose(table.pull_rows(FEASIGNS[:2]), made + 0.25, atol=1e-6)
    assert not table.get(FEASIGNS).found[2]


def test_admission_counts_occurrences() -> None:
    table = make(admission=AdmissionSettings(count=3))
    table.insert_rows(FEASIGNS, np.array([3, 2, 1], np.uint32))
    assert table.get(FEASIGNS).found.tolist() == [True, False, False]
    table.insert_rows(FEASIGNS)
    assert table.get(FEASIGNS).found.tolist() == [True, True, False]


def test_parts_make_a_whole(tmp_path: Path) -> None:
    first, second, whole = make(), make(), make()
    made = first.insert_rows(FEASIGNS[:1]), second.insert_rows(FEASIGNS[1:])
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    whole.insert_rows(np.array([77], np.uint64))
    whole.reset()
    for name in ("a", "b"):
        whole.load_part(tmp_path / name)
    assert len(whole) == 3
    np.testing.assert_array_equal(whole.pull_rows(FEASIGNS), np.concatenate(made))


def test_arrays_of_other_lengths_are_refused() -> None:
    table = make()
    two, three = np.ones(2, np.float32), np.ones(3, np.float32)
    with pytest.raises(FailedPrecondition, match="occurrences has 2 values for 3"):
        table.insert_rows(FEASIGNS, np.ones(2, np.uint32))
    with pytest.raises(FailedPrecondition, match="clicks has 2 values for 3"):
        table.push_rows(FEASIGNS, np.ones((3, 3), np.float32), three, two)
    with pytest.raises(FailedPrecondition, match="gradients of 2 weights for rows of 3"):
        table.push_rows(FEASIGNS, np.ones((3, 2), np.float32), three, three)
