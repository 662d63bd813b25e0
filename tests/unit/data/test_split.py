"""Fractions of hashes against whole-number arithmetic: they share no sample and leave none out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticctr.data.split import keep_hashes

MOST = (1 << 64) - 1
EDGES = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, MOST - 2048, MOST - 1, MOST]
fractions = st.floats(0, 1)


@given(st.lists(st.integers(0, MOST), max_size=20), fractions, fractions)
def test_a_fraction_keeps_low_up_to_high(hashes: list[int], one: float, other: float) -> None:
    low, high = sorted((one, other))
    found = keep_hashes(np.array([*EDGES, *hashes], np.uint64), (low, high))
    # Times 2^64 a float is exact, and Python compares whole numbers with floats exactly.
    assert found.tolist() == [low * 2.0**64 <= h < high * 2.0**64 for h in [*EDGES, *hashes]]


@given(fractions)
def test_two_fractions_share_nothing_and_leave_nothing_out(edge: float) -> None:
    hashes = np.array(EDGES, np.uint64)
    assert (keep_hashes(hashes, (0.0, edge)) ^ keep_hashes(hashes, (edge, 1.0))).all()


@pytest.mark.parametrize("edge", [0.0, 0.25, 1.0])
def test_an_empty_fraction_keeps_nothing(edge: float) -> None:
    assert not keep_hashes(np.array(EDGES, np.uint64), (edge, edge)).any()
