"""Metrics against scikit-learn and float64 NumPy, the merge promise, and everything that can be wrong with input."""

from __future__ import annotations

import itertools
import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, log_loss, ndcg_score, roc_auc_score

from elasticctr import _native
from elasticctr.errors import ConfigError, Corruption, FailedPrecondition
from elasticctr.train.metrics.metrics import METRIC_NAMES, Metrics, exact_auc, group_ids


def make_samples(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=n) * 1.3 - 2).astype(np.float32)
    labels = (rng.random(n) < 1 / (1 + np.exp(-0.8 * logits + 0.1))).astype(np.float32)
    weights = rng.uniform(0.1, 3, n).astype(np.float32)
    return logits, labels, weights


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


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


def test_any_grouping_and_order_gives_the_same_bits() -> None:
    logits, labels, weights = make_samples(20_000, seed=3)
    groups = np.random.default_rng(4).integers(0, 900, len(logits)).astype(np.uint64) + np.uint64(2**63)
    whole = Metrics()
    whole.update(logits, labels, weights, groups)
    order = np.random.default_rng(5).permutation(len(logits))
    parts = []
    for part in np.array_split(order, 11):
        metrics = Metrics()
        for piece in np.array_split(part, 7):
            metrics.update(logits[piece], labels[piece], weights[piece], groups[piece])
        parts.append(metrics)
    merged = Metrics()
    for metrics in reversed(parts):
        merged.merge(metrics)
    assert merged.state() == whole.state()
    assert merged.compute() == whole.compute()
    assert merged.curves() == whole.curves()


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


def test_gauc_is_the_weighted_mean_of_group_aucs() -> None:
    logits, labels, weights = make_samples(5000, seed=9)
    groups = (np.random.default_rng(1).zipf(1.3, 5000) % 700).astype(np.uint64) | np.uint64(1 << 63)
    metrics = Metrics()
    for part in np.array_split(np.arange(5000), 9):
        metrics.update(logits[part], labels[part], weights[part], groups[part])
    total, mean, skipped, counted = 0.0, 0.0, 0, 0
    for group in np.unique(groups):
        rows = groups == group
        if len(set(labels[rows])) < 2:
            skipped += 1
            continue
        counted += 1
        impressions = weights[rows].astype(np.float64).sum()
        mean += impressions * roc_auc_score(labels[rows], logits[rows], sample_weight=weights[rows])
        total += impressions
    values = metrics.compute()
    assert values.gauc == pytest.approx(mean / total, abs=1e-6)
    assert (values.gauc_groups, values.gauc_groups_skipped) == (counted, skipped)


def test_group_ids_are_first_values() -> None:
    ids = group_ids(np.array([5, 6, 2**64 - 1], np.uint64), np.array([0, 2, 2, 3], np.int32))
    assert ids.tolist() == [5, 0, 2**64 - 1]


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


def test_saved_and_restored_goes_on_as_if_uninterrupted() -> None:
    logits, labels, weights = make_samples(3000)
    groups = (np.arange(3000) % 50).astype(np.uint64)
    straight, interrupted = Metrics(window=7), Metrics(window=7)
    for i, rows in enumerate(np.array_split(np.arange(3000), 20)):
        straight.update(logits[rows], labels[rows], weights[rows] if i % 2 else None, groups[rows])
        interrupted.update(logits[rows], labels[rows], weights[rows] if i % 2 else None, groups[rows])
        if i in (3, 12):
            interrupted = Metrics.from_state(interrupted.state(), window=7)
    assert interrupted.state() == straight.state()
    assert interrupted.compute() == straight.compute()
    assert interrupted.compute_window() == straight.compute_window()
    assert Metrics.from_state(straight.state(), window=3).compute_window().samples == 450  # a smaller window now


def test_states_of_the_first_format_are_read() -> None:
    logits, labels, weights = make_samples(500)
    metrics = Metrics()
    metrics.update(logits, labels, weights)
    state = metrics.state()
    head, rest, buckets, at = state[8:96], state[96 : -4 - 16], [], 0

    def number() -> int:
        nonlocal rest
        end = next(i for i, byte in enumerate(rest) if byte < 0x80) + 1
        value = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(rest[:end]))
        rest = rest[end:]
        return value

    def weight() -> int:
        coded = number()
        return coded >> 1 if coded & 1 else (coded >> 1) << 20

    for _ in range(struct.unpack_from("<Q", head, 80)[0]):
        at += number()
        buckets.append(struct.pack("<IQQ", at, weight(), weight()))
    assert not rest and len(buckets) > 100
    body = head[:4] + struct.pack("<I", 1) + head[8:] + b"".join(buckets)
    body += struct.pack("<I", _native.crc32c(body))
    old = struct.pack("<Q", len(body)) + body + state[-16:]
    assert Metrics.from_state(old).state() == state


def test_damaged_state_is_corruption() -> None:
    metrics = Metrics(window=2)
    metrics.update(np.array([1.0, 2.0]), np.array([0.0, 1.0]), groups=np.array([1, 2], np.uint64))
    state = metrics.state()
    for i in range(len(state)):
        damaged = bytearray(state)
        damaged[i] ^= 0x20
        with pytest.raises(Corruption):
            Metrics.from_state(bytes(damaged), window=2)
    for size in range(len(state)):
        with pytest.raises(Corruption):
            Metrics.from_state(state[:size])
    with pytest.raises(Corruption):
        Metrics.from_state(state + b"x")


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


@pytest.mark.parametrize("k", [1, 3, 10, 1000])
def test_ranking_matches_scikit_learn_with_ties_and_weights(k: int) -> None:
    rng = np.random.default_rng(k)
    logits, labels, weights = make_samples(3000, seed=23)
    logits = np.round(logits * 2) / 2  # many ties
    groups = rng.integers(0, 200, 3000).astype(np.uint64)
    metrics, halves = Metrics(), Metrics()
    metrics.update(logits, labels, weights, groups)
    ndcg, recall, skipped = [], [], 0
    for group in np.unique(groups):
        rows = groups == group
        gain = labels[rows].astype(np.float64) * weights[rows]
        if gain.sum() == 0:
            skipped += 1
            continue
        if rows.sum() > 1:
            ndcg.append(ndcg_score([gain], [logits[rows]], k=k))
        else:
            ndcg.append(1.0)
        found = 0.0
        for score, own in zip(logits[rows], gain, strict=True):
            above, tied = (logits[rows] > score).sum(), (logits[rows] == score).sum()
            found += own * min(max(k - above, 0) / tied, 1.0)  # the chance to be among the first k
        recall.append(found / gain.sum())
    values = metrics.ranking(k)
    assert values[f"ndcg@{k}"] == pytest.approx(np.mean(ndcg), abs=1e-9)
    assert values[f"recall@{k}"] == pytest.approx(np.mean(recall), abs=1e-9)
    assert (values["ranked_groups"], values["ranked_groups_skipped"]) == (len(ndcg), skipped)
    order = rng.permutation(3000)
    for part in np.array_split(order, 5):
        piece = Metrics()
        piece.update(logits[part], labels[part], weights[part], groups[part])
        halves.merge(piece)
    assert halves.ranking(k) == values


def test_ranking_without_groups_or_clicks_is_null() -> None:
    assert Metrics().ranking(5) == {"ndcg@5": None, "recall@5": None, "ranked_groups": 0, "ranked_groups_skipped": 0}
    metrics = Metrics()
    metrics.update(np.array([1.0, np.nan]), np.array([0.0, 1.0]), groups=np.array([1, 1], np.uint64))
    assert metrics.ranking(5)["ndcg@5"] is None and metrics.ranking(5)["ranked_groups_skipped"] == 1
    with pytest.raises(ConfigError, match="first 1 or more"):
        metrics.ranking(0)
