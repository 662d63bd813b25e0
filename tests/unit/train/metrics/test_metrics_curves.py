"""Calibration, histograms and ROC curves against naive ones."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from tests.unit.train.metrics.samples import make_samples, sigmoid

from elasticctr.train.metrics.metrics import Metrics


def test_calibration_bins_hold_everything() -> None:
    logits, labels, _ = make_samples(100_000, seed=2)
    metrics = Metrics()
    metrics.update(logits, labels)
    p = sigmoid(logits)
    curves = metrics.curves(bins=10)
    by_count = curves["calibration"]
    assert len(by_count) == 10
    order = np.argsort(p, kind="stable")
    for row, rows in zip(by_count, np.array_split(order, 10), strict=True):
        assert row["weight"] == pytest.approx(10_000, abs=60)  # a fine bucket is not split
        assert row["predicted"] == pytest.approx(p[rows].mean(), rel=2e-3)
        assert row["actual"] == pytest.approx(labels[rows].mean(), abs=4e-3)
    for row in curves["calibration_width"]:
        rows = (p >= math.floor(row["predicted"] * 10) / 10) & (p < math.floor(row["predicted"] * 10 + 1) / 10)
        assert row["weight"] == pytest.approx(rows.sum(), abs=20)
        assert row["predicted"] == pytest.approx(p[rows].mean(), rel=2e-3)
    for rows in (by_count, curves["calibration_width"]):
        assert sum(row["weight"] for row in rows) == 100_000
        assert sum(row["positives"] for row in rows) == labels.sum()


def test_score_histogram_is_the_share_of_each_class() -> None:
    logits, labels, _ = make_samples(100_000, seed=6)
    logits -= 3  # click rates of a few percent, as in life
    metrics = Metrics()
    metrics.update(logits, labels)
    scores = metrics.curves()["scores"]
    edges = np.array(scores["edges"])
    p = np.minimum(sigmoid(logits), edges[-1])
    assert edges[-1] == pytest.approx(np.quantile(sigmoid(logits), 0.999), rel=0.02)
    for name, label in (("positive", 1), ("negative", 0)):
        expected = np.histogram(p[labels == label], edges)[0] / np.sum(labels == label)
        assert sum(scores[name]) == pytest.approx(1)
        assert scores[name] == pytest.approx(expected, abs=0.01)


def test_roc_points_span_the_area() -> None:
    logits, labels, _ = make_samples(50_000)
    metrics = Metrics()
    metrics.update(logits, labels)
    roc = np.array(metrics.curves(roc_points=300)["roc"])
    assert roc[0].tolist() == [0, 0] and roc[-1].tolist() == [1, 1] and 200 < len(roc) <= 302
    assert (np.diff(roc, axis=0) >= 0).all()
    assert np.trapezoid(roc[:, 1], roc[:, 0]) == pytest.approx(metrics.compute().auc, abs=1e-4)


def naive_ece(p: np.ndarray, labels: np.ndarray, weights: np.ndarray, edges: np.ndarray) -> float:
    error = 0.0
    for low, high in itertools.pairwise(edges):
        rows = (p >= low) & (p < high)
        error += abs(np.sum(weights[rows] * (labels[rows] - p[rows])))
    return error / weights.sum()


def test_calibration_errors_match_a_naive_one() -> None:
    logits, labels, weights = make_samples(100_000, seed=22)
    metrics = Metrics()
    metrics.update(logits, labels, weights)
    p, w = sigmoid(logits), weights.astype(np.float64)
    values: Any = metrics.compute()
    # 1.4e-5 for predictions rounded to buckets, and the samples of buckets that a border goes through
    assert values.ece == pytest.approx(naive_ece(p, labels, w, np.append(np.arange(20) / 20, 2.0)), abs=2e-4)
    order = np.argsort(p)
    cuts = np.searchsorted(np.cumsum(w[order]), np.arange(1, 20) / 20 * w.sum())
    by_mass = np.concatenate([[0.0], p[order][cuts], [2.0]])
    assert values.ece_mass == pytest.approx(naive_ece(p, labels, w, by_mass), abs=2e-4)
    assert values.rig == pytest.approx(1 - values.ne, abs=1e-15)


def test_calibration_error_of_a_constant_is_its_gap() -> None:
    metrics = Metrics()
    metrics.update(np.zeros(1000), np.repeat([1.0, 0.0], [300, 700]))
    values = metrics.compute()
    assert values.ece == pytest.approx(0.2, abs=1e-6) and values.ece_mass == pytest.approx(0.2, abs=1e-6)
    assert Metrics().compute().ece is None and Metrics().compute().pr_auc is None and Metrics().compute().rig is None
