"""A lookup against numpy.unique, on random batches of every shape."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticctr.errors import DataError
from elasticctr.table import Lookup


def reference(values: np.ndarray, offsets: np.ndarray, samples: int, slots: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Distinct feasigns by first occurrence, inverse, and the occurrences of each in order."""
    parts = [values[offsets[s * samples] : offsets[(s + 1) * samples]] for s in slots]
    flat = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    unique, first, inverse = np.unique(flat, return_index=True, return_inverse=True)
    by_first = np.argsort(first)
    rank = np.empty(len(unique), np.int64)
    rank[by_first] = np.arange(len(unique))
    return unique[by_first], rank[inverse]


def check(values: np.ndarray, offsets: np.ndarray, samples: int, slots: list[int]) -> Lookup:
    lookup = Lookup(values, offsets, samples, slots)
    feasigns, inverse = reference(values, offsets, samples, slots)
    assert np.array_equal(lookup.feasigns, feasigns)
    assert np.array_equal(lookup.inverse, inverse)
    assert lookup.distinct == len(feasigns)
    assert lookup.occurrences == len(inverse)
    assert np.array_equal(lookup.order, np.argsort(inverse, kind="stable"))
    assert np.array_equal(np.diff(lookup.starts.astype(np.int64)), np.bincount(inverse, minlength=len(feasigns)))
    return lookup


@st.composite
def batches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, list[int]]:
    samples = draw(st.integers(0, 12))
    slots = draw(st.integers(1, 5))
    lengths = draw(st.lists(st.integers(0, 4), min_size=samples * slots, max_size=samples * slots))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    pool = st.one_of(st.integers(0, 9), st.sampled_from([0, 2**64 - 1, 2**63, 2**63 - 1]), st.integers(0, 2**64 - 1))
    values = draw(st.lists(pool, min_size=int(offsets[-1]), max_size=int(offsets[-1])))
    chosen = draw(st.lists(st.integers(0, slots - 1), unique=True, max_size=slots))
    return np.array(values, np.uint64), offsets, samples, chosen


@settings(max_examples=300, deadline=None)
@given(batches())
def test_fuzzed_batches_agree_with_numpy(batch: tuple[np.ndarray, np.ndarray, int, list[int]]) -> None:
    check(*batch)


@pytest.mark.parametrize("vocabulary", [1, 7, 5_000, 10**6, 2**64 - 1])
def test_large_batches_agree_with_numpy(vocabulary: int) -> None:
    rng = np.random.default_rng(vocabulary % 1000)
    values = rng.integers(0, vocabulary, size=26 * 2048, dtype=np.uint64, endpoint=True)
    lookup = check(values, np.arange(len(values) + 1, dtype=np.int32), 2048, list(range(26)))
    assert lookup.is_single_valued


def test_scratch_serves_small_batches_after_large_ones() -> None:
    for size in (50_000, 3, 20_000, 0, 1):
        values = np.arange(size, dtype=np.uint64) * np.uint64(2**40)
        check(values, np.arange(size + 1, dtype=np.int32), size, [0])


def test_lengths_are_those_of_the_bags() -> None:
    offsets = np.array([0, 2, 2, 5, 6, 7, 8], np.int32)
    lookup = Lookup(np.arange(8, dtype=np.uint64), offsets, 3, [1, 0])
    assert lookup.lengths(0).tolist() == [1, 1, 1]
    assert lookup.lengths(1).tolist() == [2, 0, 3]
    assert lookup.lengths(1, 2).tolist() == [2, 0, 2]


@pytest.mark.parametrize(
    ("offsets", "samples", "slots"),
    [
        ([0, 1, 2], 2, [1]),  # no such slot
        ([0, 2, 1], 2, [0]),  # backwards
        ([0, 1, 9], 2, [0]),  # beyond the values
        ([-1, 0, 1], 2, [0]),  # before the values
        ([0, 1, 2, 3], 2, [0]),  # not a whole number of slots
        ([], 0, []),
    ],
)
def test_contradicting_offsets_are_refused(offsets: list[int], samples: int, slots: list[int]) -> None:
    with pytest.raises(DataError):
        Lookup(np.arange(3, dtype=np.uint64), np.array(offsets, np.int32), samples, slots)
