"""Segments: sums per value against NumPy, the memory bound, and that chance is not reported as a finding."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from elasticctr import _native
from elasticctr.errors import ConfigError, FailedPrecondition
from elasticctr.train.metrics.segments import SlotSegments, find_cut, report_segments


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def make_samples(n: int, values: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A calibrated model: labels are drawn from its predictions."""
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=n) - 1.5).astype(np.float32)
    labels = (rng.random(n) < sigmoid(logits)).astype(np.float32)
    ids = rng.integers(1, values + 1, n).astype(np.uint64)
    return ids, logits, labels


def feed(
    segments: SlotSegments, ids: np.ndarray, logits: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
) -> SlotSegments:
    segments.update(ids, np.arange(len(ids) + 1, dtype=np.int32), logits, labels, weights)
    return segments


def test_sums_and_field_calibration_match_numpy() -> None:
    ids, logits, labels = make_samples(20_000)
    weights = np.random.default_rng(1).uniform(0.1, 3, len(ids)).astype(np.float32)
    found = feed(SlotSegments(), ids, logits, labels, weights).calibration()
    p, w, y = sigmoid(logits), weights.astype(np.float64), labels.astype(np.float64)
    gaps = np.array([np.sum((w * (y - p))[ids == v]) for v in range(1, 51)])
    mass = np.array([w[ids == v].sum() for v in range(1, 51)])
    clicks = np.array([(w * y)[ids == v].sum() for v in range(1, 51)])
    assert found["field_ece"] == pytest.approx(np.abs(gaps).sum() / w.sum(), rel=1e-5)
    assert found["field_rce"] == pytest.approx(np.sum(mass * np.abs(gaps) / clicks) / w.sum(), rel=1e-5)
    assert (found["values"], found["values_share"]) == (50, 1.0)


def test_bags_count_for_each_value_once_and_empty_ones_for_zero() -> None:
    sums = _native.SegmentMetrics(10)
    values, offsets = np.array([7, 7, 9, 9], np.uint64), np.array([0, 3, 3, 4], np.int32)
    sums.update(values, offsets, np.zeros(3, np.float32), np.array([1, 0, 0], np.float32))
    found, rows = sums.rows()
    assert found.tolist() == [0, 7, 9]
    assert rows[:, 0].tolist() == [1, 1, 2] and rows[:, 2].tolist() == [0, 1, 1]
    assert rows[:, 3] == pytest.approx([0.5, 0.5, 1.0]) and rows[:, 4] == pytest.approx(np.log(2) * np.array([1, 1, 2]))


def test_memory_is_bounded_and_merging_is_exact_all_the_same() -> None:
    ids, logits, labels = make_samples(6000, values=3000, seed=2)
    whole = _native.SegmentMetrics(100)
    whole.update(ids, np.arange(6001, dtype=np.int32), logits, labels)
    values, rows = whole.rows()
    assert 30 <= len(values) <= 100 and whole.level >= 5 and whole.samples == 6000
    for value, row in zip(values.tolist(), rows, strict=True):  # those kept have all of their samples
        assert row[0] == (ids == value).sum() and row[2] == labels[ids == value].sum()
    merged = _native.SegmentMetrics(100)
    for part in np.array_split(np.random.default_rng(3).permutation(6000), 9):
        one = _native.SegmentMetrics(100)
        one.update(ids[part], np.arange(len(part) + 1, dtype=np.int32), logits[part], labels[part])
        merged.merge(one)
    assert merged.state() == whole.state()
    restored = _native.SegmentMetrics(5)
    restored.restore(whole.state())
    assert restored.state() == whole.state()


@pytest.mark.parametrize("by", ["calibration", "loss", "auc"])
def test_chance_is_not_reported(by: Any) -> None:
    reports = 0
    for seed in range(20):
        ids, logits, labels = make_samples(20_000, values=100, seed=seed)
        slots = {"ad": feed(SlotSegments(by), ids, logits, labels)}
        found = report_segments(slots, min_samples=50)["ad"]
        assert found["tested"] > 90
        reports += found["found"] > 0
    assert reports <= 4  # 5 % of runs, 1 of 20 on average


def test_a_miscalibrated_value_is_found_and_named() -> None:
    ids, logits, labels = make_samples(40_000, values=40, seed=5)
    logits[ids == 13] += 0.7  # predicts too much there
    found = report_segments({"ad": feed(SlotSegments(), ids, logits, labels)}, min_samples=200)["ad"]
    assert [row["value"] for row in found["worst"]] == ["13"] and found["tested"] == 40
    row = found["worst"][0]
    p = sigmoid(logits[ids == 13])
    assert row["samples"] == len(p)
    assert row["predicted_ctr"] == pytest.approx(p.mean(), rel=1e-6) and row["ctr"] == labels[ids == 13].mean()
    assert row["copc"] < 1 and row["ctr_hi"] < row["predicted_ctr"] and row["p_value"] < 1e-4
    assert json.dumps(found, allow_nan=False)


def test_a_value_the_model_knows_nothing_of_is_found_by_loss_and_auc() -> None:
    ids, logits, labels = make_samples(60_000, values=30, seed=6)
    rows = np.nonzero(ids == 4)[0]
    logits[rows] = np.random.default_rng(7).permutation(logits[rows])  # calibrated on the whole, and of no use
    for by in ("loss", "auc"):
        slots = {"ad": feed(SlotSegments(by), ids, logits, labels)}
        assert [row["value"] for row in report_segments(slots, min_samples=200)["ad"]["worst"]] == ["4"]
    assert report_segments({"ad": feed(SlotSegments(), ids, logits, labels)}, min_samples=200)["ad"]["found"] == 0


def test_auc_of_a_group_and_its_deviation() -> None:
    from sklearn.metrics import roc_auc_score

    ids, logits, labels = make_samples(4000, values=2, seed=8)
    logits = np.round(logits, 1)
    groups = _native.GroupAuc()
    groups.update(ids, logits, labels)
    values, rows = groups.rows(1)
    for value, (samples, weight, positive, auc, deviation) in zip(values, rows, strict=True):
        x, y = logits[ids == value], labels[ids == value]
        assert (samples, weight, positive) == (len(x), len(x), y.sum())
        assert auc == pytest.approx(roc_auc_score(y, x), abs=1e-9)
        wins = (x[y == 1][:, None] > x[y == 0]) + 0.5 * (x[y == 1][:, None] == x[y == 0])
        expected = wins.mean(axis=1).var(ddof=1) / len(wins) + wins.mean(axis=0).var(ddof=1) / wins.shape[1]
        assert deviation == pytest.approx(np.sqrt(expected), rel=1e-6)
    assert len(groups.rows(3000)[0]) == 0


def test_few_clicks_are_no_finding() -> None:
    """Two clicks where 0.1 were expected: a normal approximation would be six deviations off."""
    ids = np.repeat(np.array([1, 2], np.uint64), 1000)
    logits = np.full(2000, np.log(1e-4), np.float32)
    labels = np.zeros(2000, np.float32)
    labels[0] = 1
    found = report_segments({"ad": feed(SlotSegments(), ids, logits, labels)}, min_samples=100)["ad"]
    assert found["tested"] == 2 and found["found"] == 0


def test_nothing_one_class_and_nan() -> None:
    for by in ("calibration", "loss", "auc"):
        empty = report_segments({"ad": SlotSegments(by)}, min_samples=1)["ad"]
        assert empty["field_ece"] is None and empty["found"] == empty["tested"] == 0
        clicks = feed(SlotSegments(by), np.ones(4, np.uint64), np.array([0.0, np.nan, 1, 2]), np.ones(4))
        assert json.dumps(report_segments({"ad": clicks}, min_samples=1), allow_nan=False)


def test_find_cut_is_that_of_benjamini_and_hochberg() -> None:
    assert find_cut([], 0.05) == -1 and find_cut([0.2, 0.9], 0.05) == -1
    assert find_cut([0.9, 0.01, 0.02, 0.039], 0.05) == 0.02
    assert find_cut([0.03, 0.04, 0.02, 0.045], 0.05) == 0.045


def test_wrong_use_is_a_typed_error() -> None:
    with pytest.raises(ConfigError, match="calibration, loss, auc"):
        SlotSegments("clicks")  # type: ignore[arg-type]
    with pytest.raises(FailedPrecondition, match="offsets"):
        SlotSegments().update(np.ones(1, np.uint64), np.array([0, 2]), np.zeros(1), np.zeros(1))
    with pytest.raises(FailedPrecondition, match="at most"):
        SlotSegments(max_values=5).merge(SlotSegments(max_values=6))
