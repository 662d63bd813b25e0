"""find, pull and push against NumPy, initial values, admission, counters, eviction, threads."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from numpy.typing import ArrayLike

from elasticctr import _native
from elasticctr._native import Layout, Lookup
from elasticctr.errors import ConfigError, FailedPrecondition
from elasticctr.table import (
    AdmissionSettings,
    ConstantSettings,
    FtrlSettings,
    NormalSettings,
    SegmentSettings,
    SgdSettings,
    SlotTarget,
    Table,
    TableSettings,
    UniformSettings,
    ZerosSettings,
)

DIM = 5


def make_table(**changes: Any) -> Table:
    settings = {
        "segments": (
            SegmentSettings(name="linear", dim=1, optimizer=FtrlSettings(), initializer=UniformSettings()),
            SegmentSettings(name="embedding", dim=DIM, optimizer=SgdSettings(learning_rate=1.0)),
        )
    }
    return Table(TableSettings(**(settings | changes)))


def make_batch(
    seed: int = 0, samples: int = 40, slots: int = 3, longest: int = 4, vocabulary: int = 50
) -> tuple[np.ndarray, np.ndarray, int]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest + 1, size=samples * slots)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return rng.integers(0, vocabulary, size=offsets[-1]).astype(np.uint64), offsets, samples


def insert(table: Table, feasigns: ArrayLike) -> tuple[Lookup, Layout]:
    feasigns = np.asarray(feasigns, np.uint64)
    layout = table.layout([SlotTarget(0, {table.settings.segments[0].name: 0})])
    lookup = layout.lookup(feasigns, np.array([0, len(feasigns)], np.int32), 1)
    table.find(lookup, insert=True)
    return lookup, layout


@pytest.mark.parametrize("longest", [1, 4])
def test_pull_pools_as_numpy_does(longest: int) -> None:
    table = make_table()
    values, offsets, samples = make_batch(longest=longest)
    if longest == 1:
        offsets = np.arange(3 * samples + 1, dtype=np.int32)
        values = np.random.default_rng(1).integers(0, 9, size=3 * samples).astype(np.uint64)
    layout = table.layout(
        [
            SlotTarget(2, {"linear": 0, "embedding": 3}),
            SlotTarget(0, {"linear": 1, "embedding": 3 + DIM}, pooling="mean"),
            SlotTarget(1, {"embedding": 3 + 2 * DIM}),  # without the linear segment
        ]
    )
    lookup = layout.lookup(values, offsets, samples)
    table.find(lookup, insert=True)
    flat = np.full((samples, 3 + 3 * DIM), np.nan, np.float32)
    table.pull(lookup, layout, [flat])
    weights = table.get(values).weights
    assert np.isnan(flat[:, 2]).all(), "a column no slot names stays untouched"
    for slot, linear, column, mean in [(2, 0, 3, False), (0, 1, 3 + DIM, True), (1, None, 3 + 2 * DIM, False)]:
        for i in range(samples):
            bag = weights[offsets[slot * samples + i] : offsets[slot * samples + i + 1]]
            expected = bag.sum(0) / (max(len(bag), 1) if mean else 1)
            np.testing.assert_allclose(flat[i, column : column + DIM], expected[1:], rtol=1e-5, atol=1e-7)
            if linear is not None:
                np.testing.assert_allclose(flat[i, linear], expected[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("pooling", ["first", "last"])
def test_sequences_are_padded_and_trained_value_by_value(pooling: Any) -> None:
    table = make_table()
    layout = table.layout([SlotTarget(0, {"embedding": 1}, pooling=pooling, length=3)])
    values = np.arange(1, 8, dtype=np.uint64)
    offsets = np.array([0, 2, 2, 7], np.int32)  # 2, 0 and 5 values
    lookup = layout.lookup(values, offsets, 3)
    table.find(lookup, insert=True)
    before = table.get(values).weights[:, 1:]
    out = np.full((3, 3, 1 + DIM), np.nan, np.float32)
    table.pull(lookup, layout, [out])
    kept = slice(2, 5) if pooling == "first" else slice(4, 7)
    np.testing.assert_array_equal(out[0, :2, 1:], before[:2])
    np.testing.assert_array_equal(out[2, :, 1:], before[kept])
    assert not out[0, 2, 1:].any() and not out[1, :, 1:].any()
    gradient = np.random.default_rng(0).normal(size=out.shape).astype(np.float32)
    table.push(lookup, layout, [gradient])
    after = table.get(values).weights[:, 1:]
    expected = before.copy()
    expected[:2] -= gradient[0, :2, 1:]
    expected[kept] -= gradient[2, :, 1:]
    np.testing.assert_allclose(after, expected, rtol=1e-6)


def test_a_segment_no_slot_uses_is_not_stepped() -> None:
    table = Table(
        TableSettings(segments=(SegmentSettings(name="a", dim=2), SegmentSettings(name="b", dim=2)))
    )  # Adam moves weights by momentum even at zero gradient
    both = table.layout([SlotTarget(0, {"a": 0, "b": 2})])
    only = table.layout([SlotTarget(0, {"a": 0})])
    offsets = np.array([0, 1], np.int32)
    lookup = both.lookup(np.array([5], np.uint64), offsets, 1)
    table.find(lookup, insert=True)
    table.push(lookup, both, [np.ones((1, 4), np.float32)])
    before = table.get(np.array([5], np.uint64)).weights
    table.push(lookup, only, [np.ones((1, 2), np.float32)])
    after = table.get(np.array([5], np.uint64)).weights
    assert (after[0, :2] != before[0, :2]).all() and (after[0, 2:] == before[0, 2:]).all()


def test_extreme_feasigns_are_feasigns() -> None:
    table = make_table()
    feasigns = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    assert not table.get(feasigns).found.any()
    assert not table.get(feasigns).weights.any()
    insert(table, feasigns)
    rows = table.get(feasigns)
    assert rows.found.all() and len(table) == 5
    assert len(np.unique(rows.weights, axis=0)) == 5


def test_a_million_rows_are_all_found_again() -> None:
    table = Table(TableSettings(segments=(SegmentSettings(dim=1, optimizer=SgdSettings()),)))
    feasigns = np.random.default_rng(0).permutation(1_000_000).astype(np.uint64) * np.uint64(0x10001)
    for part in np.array_split(feasigns, 5):
        insert(table, part)
    assert table.get(feasigns).found.all() and len(table) == 1_000_000
    assert not table.get(feasigns + np.uint64(1)).found.any()
    stats = table.stats()
    assert stats.index_bytes / stats.rows <= 6.0
    assert (stats.row_bytes + stats.index_bytes - stats.payload_bytes - stats.counter_bytes) / stats.rows <= 16


def test_initial_values_depend_on_seed_table_segment_and_feasign_alone() -> None:
    feasigns = np.arange(500, dtype=np.uint64)

    def weights(order: int = 1, **changes: Any) -> np.ndarray:
        table = make_table(**changes)
        insert(table, feasigns[::order])
        return table.get(feasigns).weights

    first = weights()
    assert np.array_equal(first, weights(order=-1))
    for changes in ({"seed": 1}, {"name": "other"}):
        assert (weights(**changes) != first).mean() > 0.99
    assert not np.array_equal(first[:, 0], first[:, 1])


def mix64(x: int) -> int:
    mask = 2**64 - 1
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def test_initial_values_are_golden() -> None:
    """Stored models depend on them: recomputed with Python's integers, and as first written down."""
    feasigns = [0, 2**64 - 1]
    segment = SegmentSettings(name="embedding", dim=3, initializer=UniformSettings(low=-0.5, high=0.5))
    table = Table(TableSettings(name="golden", seed=42, segments=(segment,)))
    insert(table, feasigns)
    weights = table.get(np.array(feasigns, np.uint64)).weights.tolist()
    salt = xxhash.xxh64_intdigest(b"embedding", seed=xxhash.xxh64_intdigest(b"golden", seed=42))
    for feasign, row in zip(feasigns, weights, strict=True):
        stream = (mix64(feasign ^ salt) + salt) % 2**64
        draws = [mix64((stream + (i + 1) * 0x9E3779B97F4A7C15) % 2**64) for i in range(3)]
        assert row == [-0.5 + (draw >> 40) / 2**24 for draw in draws]
    assert weights[0] == [-0.45726680755615234, -0.3862440586090088, -0.2459844946861267]


def test_initializers_have_the_distribution_they_say() -> None:
    def draw(initializer: Any) -> np.ndarray:
        table = Table(TableSettings(segments=(SegmentSettings(dim=8, initializer=initializer),)))
        insert(table, np.arange(20_000))
        return table.get(np.arange(20_000, dtype=np.uint64)).weights.astype(np.float64).ravel()

    assert not draw(ZerosSettings()).any()
    assert (draw(ConstantSettings(value=0.5)) == 0.5).all()
    n = 160_000
    uniform = draw(UniformSettings(low=-1, high=3))
    assert uniform.min() >= -1 and uniform.max() < 3
    assert abs(uniform.mean() - 1) < 5 * (4 / 12**0.5) / n**0.5
    normal = draw(NormalSettings(mean=1, std=2))
    assert abs(normal.mean() - 1) < 5 * 2 / n**0.5
    assert abs(normal.std() - 2) < 0.02
    assert abs((np.abs(normal - 1) < 2).mean() - 0.6827) < 0.01


def test_admission_by_count_reads_zeros_until_then() -> None:
    table = make_table(admission=AdmissionSettings(count=3))
    lookup, layout = insert(table, [1, 1, 2])
    assert len(table) == 0 and table.stats().pending == 2
    out = np.ones((1, 1), np.float32)
    table.pull(lookup, layout, [out])
    assert out[0, 0] == 0
    table.push(lookup, layout, [out])  # nothing to train yet
    insert(table, [1])
    assert table.get(np.array([1, 2], np.uint64)).found.tolist() == [True, False]
    table.find(lookup)  # finding alone does not count
    assert table.stats().pending == 1


def test_admission_by_probability_is_a_share_and_deterministic() -> None:
    tables = [make_table(admission=AdmissionSettings(probability=0.1), seed=seed) for seed in (0, 0, 1)]
    for table in tables:
        insert(table, np.arange(20_000))
    found = [table.get(np.arange(20_000, dtype=np.uint64)).found for table in tables]
    assert np.array_equal(found[0], found[1]) and not np.array_equal(found[0], found[2])
    assert abs(found[0].mean() - 0.1) < 0.01
    for _ in range(9):
        insert(tables[0], np.arange(20_000))
    assert abs(len(tables[0]) / 20_000 - (1 - 0.9**10)) < 0.02


def test_counters_count_every_occurrence() -> None:
    table = make_table()
    layout = table.layout([SlotTarget(0, {"embedding": 0}), SlotTarget(1, {"embedding": DIM})])
    lookup = layout.lookup(np.array([7, 7, 8, 7, 8], np.uint64), np.array([0, 2, 3, 4, 5], np.int32), 2)
    table.find(lookup, insert=True)
    zeros = np.zeros((2, 2 * DIM), np.float32)
    labels = np.array([[1, 9], [0, 9]], np.float32)
    table.push(lookup, layout, [zeros], clicks=labels[:, 0], shows=np.array([2, 3], np.float32), now=17)
    rows = table.get(np.array([7, 8, 9], np.uint64))
    assert rows.shows.tolist() == [6, 6, 0]
    assert rows.clicks.tolist() == [3, 0, 0]
    assert rows.last_seen.tolist() == [17, 17, 0]
    table.decay(0.5)
    assert table.get(np.array([7], np.uint64)).shows.tolist() == [3]
    assert table.evict(min_score=3.5) == 2


def test_evict_by_age_and_refuse_stale_lookups() -> None:
    table = make_table()
    old, layout = insert(table, [1, 2])
    new, _ = insert(table, [3])
    for now, lookup in ((5, old), (9, new)):
        table.push(lookup, layout, [np.zeros((1, 1), np.float32)], now=now)
    assert table.evict(oldest=6) == 2
    assert table.get(np.array([1, 2, 3], np.uint64)).found.tolist() == [False, False, True]
    with pytest.raises(FailedPrecondition, match="find"):
        table.pull(new, layout, [np.zeros((1, 1), np.float32)])
    table.find(new)
    table.pull(new, layout, [np.zeros((1, 1), np.float32)])
    assert table.erase(np.array([3, 4], np.uint64)) == 1 and len(table) == 0


def test_without_counters_rows_are_smaller_and_eviction_says_why() -> None:
    table, with_counters = make_table(counters=False), make_table()
    for t in (table, with_counters):
        insert(t, np.arange(100))
    assert table.stats().row_bytes < with_counters.stats().row_bytes
    assert table.stats().counter_bytes == 0
    with pytest.raises(FailedPrecondition, match="counters"):
        table.evict(min_score=1)
    a, b = (t.get(np.arange(100, dtype=np.uint64)).weights for t in (table, with_counters))
    assert np.array_equal(a, b)


def test_rows_come_out_in_chunks_and_by_bucket() -> None:
    table = make_table()
    feasigns = np.arange(3000, dtype=np.uint64)
    insert(table, feasigns)
    chunks = list(table.rows(limit=700))
    assert max(len(chunk) for chunk in chunks) <= 700
    assert np.array_equal(np.sort(np.concatenate([c.feasigns for c in chunks])), feasigns)
    some = np.concatenate([c.feasigns for c in table.rows(limit=9, buckets=(100, 1500))])
    assert sorted(some) == sorted(f for f in feasigns.tolist() if 100 <= _native.bucket_of(f) < 1500)
    one = next(table.rows())
    assert np.array_equal(one.weights, table.get(one.feasigns).weights)


def run(threads: int, tmp_path: Path) -> bytes:
    _native.set_threads(threads)
    table = make_table()
    layout = table.layout([SlotTarget(s, {"linear": s, "embedding": 3 + DIM * s}) for s in range(3)])
    for step in range(5):
        lookup = layout.lookup(*make_batch(step, samples=700, vocabulary=3000))
        table.find(lookup, insert=True)
        flat = np.zeros((700, 3 + 3 * DIM), np.float32)
        table.pull(lookup, layout, [flat])
        table.push(lookup, layout, [flat + np.float32(0.1)])
    table.save(tmp_path / f"{threads}")
    return (tmp_path / f"{threads}").read_bytes()


def test_the_number_of_threads_changes_no_bit(tmp_path: Path) -> None:
    before = _native.threads()
    try:
        one = run(1, tmp_path)
        assert run(2, tmp_path) == one
        assert run(5, tmp_path) == one
    finally:
        _native.set_threads(before)


def test_reading_beside_training_sees_whole_rows() -> None:
    table = Table(
        TableSettings(
            segments=(
                SegmentSettings(
                    name="w", dim=16, optimizer=SgdSettings(learning_rate=1.0), initializer=ZerosSettings()
                ),
            )
        )
    )
    feasigns = np.arange(2000, dtype=np.uint64)
    lookup, layout = insert(table, feasigns)
    failures = []

    def read() -> None:
        for _ in range(50):
            weights = table.get(feasigns).weights
            if (weights != weights[:, :1]).any():
                failures.append("a row was read half-written")

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        table.push(lookup, layout, [np.full((1, 16), -1.0, np.float32)])
    reader.join()
    assert not failures
    assert (table.get(feasigns).weights == 50).all()


@pytest.mark.parametrize(
    ("shape", "message"),
    [((40, 4), "column"), ((39, 30), "samples"), ((40, 2, 30), "width"), ((40,), "dimensions")],
)
def test_arrays_that_do_not_fit_are_refused(shape: tuple[int, ...], message: str) -> None:
    table = make_table()
    layout = table.layout([SlotTarget(0, {"embedding": 0})])
    lookup = layout.lookup(*make_batch())
    table.find(lookup)
    with pytest.raises(FailedPrecondition, match=message):
        table.pull(lookup, layout, [np.zeros(shape, np.float32)])


def test_wrong_calls_are_refused() -> None:
    table, other = make_table(), make_table()
    layout = table.layout([SlotTarget(0, {"embedding": 0})])
    lookup = layout.lookup(*make_batch())
    flat = np.zeros((40, DIM), np.float32)
    with pytest.raises(FailedPrecondition, match="find"):
        table.pull(lookup, layout, [flat])
    table.find(lookup)
    with pytest.raises(FailedPrecondition):
        other.pull(lookup, layout, [flat])
    with pytest.raises(FailedPrecondition, match="arrays"):
        table.pull(lookup, layout, [flat, flat])
    with pytest.raises(FailedPrecondition, match="side by side"):
        table.pull(lookup, layout, [np.zeros((DIM, 40), np.float32).T])
    with pytest.raises(FailedPrecondition, match="clicks"):
        table.push(lookup, layout, [flat], clicks=np.zeros(3, np.float32))
    with pytest.raises(ConfigError, match="no segment 'wide'"):
        table.layout([SlotTarget(0, {"wide": 0})])
    with pytest.raises(ConfigError, match="length"):
        table.layout([SlotTarget(0, {"linear": 0}, pooling="last")])
