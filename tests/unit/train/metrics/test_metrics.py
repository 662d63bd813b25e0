"""Metrics against scikit-learn and float64 NumPy, and input that is wrong."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score
from tests.unit.train.metrics.samples import make_samples, sigmoid

from elasticctr.errors import ConfigError, FailedPrecondition
from elasticctr.train.metrics.metrics import METRIC_NAMES, Metrics, exact_auc


@pytest.mark.parametrize("is_weighted", [False, True])
def test_values_match_scikit_learn(is_weighted: bool) -> None:
    logits, labels, weights = make_samples(200_000)
    w = weights if is_weighted else None
    metrics = Metrics()
    for part in np.array_split(np.arange(len(logits)), 37):
        metrics.update(logits[part], labels[part], None if w is None else w[part])
    values = metrics.compute()
    p = sigmoid(logits)
    w64 = weights.astype(np.float64) if is_weighted else np.ones(len(p))
    assert values.samples == len(logits)
    assert values.auc == pytest.approx(roc_auc_score(labels, logits, sample_weight=w), abs=1e-6)
    assert exact_auc(logits, labels, w) == pytest.approx(roc_auc_score(labels, logits, sample_weight=w), abs=1e-9)
    # weights are rounded to 2^-20, losses to 2^-30; rounding averages out over 200,000 samples
    expected_loss = log_loss(labels, p, sample_weight=w)
    assert values.logloss == pytest.approx(expected_loss, rel=1e-8)
    ctr = np.average(labels, weights=w64)
    entropy = -(ctr * math.log(ctr) + (1 - ctr) * math.log(1 - ctr))
    assert values.ne == pytest.approx(expected_loss / entropy, rel=1e-7)
    assert values.ctr == pytest.approx(ctr, rel=1e-7)
    assert values.predicted_ctr == pytest.approx(np.average(p, weights=w64), rel=1e-8)
    assert values.copc == pytest.approx(np.sum(labels * w64) / np.sum(p * w64), rel=1e-7)


@pytest.mark.parametrize("logit", [0.0, -0.0, 1e-30, 1e-3, -0.34, 0.35, 0.8814, -5.0, 17.0, -29.9])
def test_loss_of_one_sample_is_accurate_everywhere(logit: float) -> None:
    for label in (0.0, 1.0):
        metrics = Metrics()
        metrics.update(np.array([logit]), np.array([label]))
        x = float(np.float32(logit))
        expected = max(x, 0) - x * label + math.log1p(math.exp(-abs(x)))
        values = metrics.compute()
        assert values.logloss == pytest.approx(expected, abs=2**-30)
        assert values.predicted_ctr == pytest.approx(1 / (1 + math.exp(-x)), abs=2**-30)


SCORES = [-300.0, -2.0, -1.0, 0.0, -0.0, 1e-9, 2.5, 4e4]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([-300.0, -2.0, -1.0, 0.0, -0.0, 1e-9, 2.5, 4e4]), st.booleans()),
        min_size=1,
        max_size=40,
    )
)
def test_auc_with_ties_equals_counting_pairs(samples: list[tuple[float, bool]]) -> None:
    scores = np.array([s for s, _ in samples], np.float32)
    labels = np.array([c for _, c in samples], np.float32)
    positive, negative = scores[labels == 1], scores[labels == 0]
    metrics = Metrics()
    metrics.update(scores, labels)
    if len(positive) == 0 or len(negative) == 0:
        assert metrics.compute().auc is None
        assert exact_auc(scores, labels) is None
        return
    difference = positive[:, None].astype(np.float64) - negative[None, :]
    expected = np.mean((difference > 0) + 0.5 * (difference == 0))
    assert exact_auc(scores, labels) == pytest.approx(expected, abs=1e-12)
    is_resolved = not {0.0, float(np.float32(1e-9))} <= set(scores.tolist())  # both below the finest bucket
    if is_resolved:
        assert metrics.compute().auc == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_is_null_not_a_crash(label: float) -> None:
    metrics = Metrics()
    metrics.update(np.array([-1.0, 2.0]), np.full(2, label), groups=np.array([1, 1], np.uint64))
    values = json.loads(json.dumps(metrics.as_dict(), allow_nan=False))
    assert values["auc"] is None and values["ne"] is None and values["gauc"] is None
    assert values["gauc_groups_skipped"] == 1
    assert values["logloss"] > 0
    assert metrics.curves()["roc"] == []


def test_nothing_seen_is_null() -> None:
    metrics = Metrics(window=3)
    assert json.dumps(metrics.as_dict(), allow_nan=False)
    assert metrics.compute().logloss is None and metrics.compute_window().auc is None
    curves = metrics.curves()
    assert curves["roc"] == curves["calibration"] == curves["calibration_width"] == curves["scores"]["edges"] == []


def test_extreme_scores_are_clipped() -> None:
    scores = np.array([0.0, 1.0, 1.0, 0.0], np.float32)
    labels = np.array([0.0, 1.0, 0.0, 1.0], np.float32)
    metrics = Metrics()
    metrics.update(scores, labels, are_scores=True)
    eps = 2.0**-23
    assert metrics.compute().logloss == pytest.approx(
        log_loss(labels, np.clip(scores.astype(float), eps, 1 - eps)), rel=1e-7
    )
    assert metrics.compute().auc == 0.5
    extreme = Metrics()
    extreme.update(np.array([np.inf, -np.inf, 3e38]), np.array([1.0, 0.0, 0.0]))
    assert extreme.compute().logloss == pytest.approx(10.0, rel=1e-9)  # one wrong logit, clamped to 30, of three


def test_scores_and_logits_agree() -> None:
    logits, labels, weights = make_samples(50_000, seed=8)
    by_logit, by_score = Metrics(), Metrics()
    by_logit.update(logits, labels, weights)
    by_score.update(sigmoid(logits).astype(np.float32), labels, weights, are_scores=True)
    a, b = by_logit.compute(), by_score.compute()
    assert b.auc == pytest.approx(a.auc, abs=1e-6)
    assert b.logloss == pytest.approx(a.logloss, rel=1e-7)
    assert b.copc == pytest.approx(a.copc, rel=1e-7)


def test_bad_samples_are_counted_and_change_nothing() -> None:
    logits, labels, weights = make_samples(1000)
    clean, dirty = Metrics(), Metrics()
    clean.update(logits, labels, weights)
    nan = np.nan
    dirty.update(
        np.concatenate([logits, [nan, nan, 1, 1, 1, 1, 1]]),
        np.concatenate([labels, [1, nan, 2, -1, nan, 1, 1]]),
        np.concatenate([weights, [1, 1, 1, 1, 1, -1, 1e9]]),
    )
    a, b = clean.compute(), dirty.compute()
    assert (b.invalid_scores, b.invalid_labels) == (2, 5)
    assert (a.samples, a.auc, a.logloss, a.copc) == (b.samples, b.auc, b.logloss, b.copc)
    out_of_range = Metrics(window=1)
    out_of_range.update(np.array([1.5, -0.1, 0.5]), np.array([1, 1, 1]), are_scores=True)
    assert out_of_range.compute().invalid_scores == 2
    assert out_of_range.compute_window().invalid_scores == 2


def test_fractional_labels_count_as_both_classes() -> None:
    """A line that stands for 10 shows and 3 clicks is 3 positives and 7 negatives."""
    one, many = Metrics(), Metrics()
    one.update(np.array([-1.0, 0.5]), np.array([0.25, 0.5]), np.array([8.0, 4.0]))
    many.update(np.array([-1.0] * 8 + [0.5] * 4), np.array([1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]))
    a, b = one.compute(), many.compute()
    assert a.auc == b.auc and a.positives == b.positives == 4 and a.negatives == b.negatives == 8
    assert a.logloss == pytest.approx(b.logloss, abs=2**-29)


def test_window_sees_only_the_last_batches() -> None:
    logits, labels, weights = make_samples(4000)
    metrics = Metrics(window=3)
    batches = np.array_split(np.arange(4000), 10)
    for rows in batches:
        metrics.update(logits[rows], labels[rows], weights[rows])
    last = np.concatenate(batches[-3:])
    values = metrics.compute_window()
    assert values.samples == len(last)
    assert values.auc == pytest.approx(roc_auc_score(labels[last], logits[last], sample_weight=weights[last]), abs=1e-7)
    assert values.logloss == pytest.approx(
        log_loss(labels[last], sigmoid(logits[last]), sample_weight=weights[last]), rel=1e-6
    )
    assert metrics.compute().samples == 4000


def test_wrong_use_is_a_typed_error() -> None:
    with pytest.raises(ConfigError, match="did you mean 'logloss'"):
        Metrics(names=["loglos"])
    with pytest.raises(FailedPrecondition, match="same length"):
        Metrics().update(np.zeros(3), np.zeros(2))
    metrics = Metrics(names=["auc", "copc"])
    assert list(metrics.as_dict()) == ["auc", "copc"]
    assert set(METRIC_NAMES) >= {"auc", "gauc", "logloss", "ne", "copc", "ctr", "predicted_ctr"}


def test_inputs_of_other_shapes_and_types_are_taken() -> None:
    logits, labels, _ = make_samples(100)
    a, b = Metrics(), Metrics()
    a.update(logits, labels)
    b.update(logits.reshape(-1, 1).astype(np.float64), np.stack([labels, labels * 0], axis=1)[:, 0].astype(bool))
    assert a.state() == b.state()


@pytest.mark.parametrize("is_weighted", [False, True])
def test_average_precision_matches_scikit_learn(is_weighted: bool) -> None:
    logits, labels, weights = make_samples(50_000, seed=21)
    logits[::7] = np.float32(-1.25)  # a tie of thousands
    w = weights if is_weighted else None
    metrics = Metrics()
    metrics.update(logits, labels, w)
    expected = average_precision_score(labels, logits, sample_weight=w)
    values: Any = metrics.compute()
    bounds: Any = metrics.bounds()
    assert values.pr_auc == pytest.approx(expected, abs=1e-5)
    assert abs(values.pr_auc - expected) <= bounds["pr_auc"] < 0.03  # the bound cannot know that they tie in truth
    assert abs(values.auc - roc_auc_score(labels, logits, sample_weight=w)) <= bounds["auc"] + 1e-9


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([-2.0, -1.0, 0.5, 0.50001, 0.50002, 3.0]), st.booleans()), min_size=1))
def test_bounds_hold_for_scores_that_share_a_bucket(samples: list[tuple[float, bool]]) -> None:
    scores = np.array([s for s, _ in samples], np.float32)
    labels = np.array([c for _, c in samples], np.float32)
    metrics = Metrics()
    metrics.update(scores, labels)
    values: Any = metrics.compute()
    bounds: Any = metrics.bounds()
    if labels.sum() == 0:
        assert values.pr_auc is None and bounds["pr_auc"] is None
        return
    assert abs(values.pr_auc - average_precision_score(labels, scores)) <= bounds["pr_auc"] + 1e-12
    if labels.min() == 0:
        assert abs(values.auc - roc_auc_score(labels, scores)) <= bounds["auc"] + 1e-12
