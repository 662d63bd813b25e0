"""Bootstrap intervals against what is known of the spread of AUC and logloss, and against a naive bootstrap."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from elasticctr.errors import ConfigError, Corruption, FailedPrecondition
from elasticctr.train.metrics.bootstrap import Bootstrap


def make_samples(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=n) - 1).astype(np.float32)
    labels = (rng.random(n) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    others = (logits + rng.normal(size=n) * 0.5).astype(np.float32)
    return logits, labels, others, rng.uniform(0.1, 3, n).astype(np.float32)


def run(
    logits: np.ndarray,
    labels: np.ndarray,
    others: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    replicates: int = 400,
    seed: int = 1,
) -> dict[str, Any]:
    bootstrap = Bootstrap(replicates, seed=seed, is_paired=others is not None)
    bootstrap.update(logits, labels, weights, others)
    return bootstrap.intervals()


def test_values_match_scikit_learn() -> None:
    logits, labels, others, weights = make_samples(5000)
    found = run(logits, labels, others, weights)
    for part, scores in ((found, logits), (found["other"], others)):
        p = 1 / (1 + np.exp(-scores.astype(np.float64)))
        assert part["auc"]["value"] == pytest.approx(roc_auc_score(labels, scores, sample_weight=weights), abs=1e-7)
        assert part["logloss"]["value"] == pytest.approx(log_loss(labels, p, sample_weight=weights), rel=1e-6)
    for name in ("auc", "logloss"):
        expected = found[name]["value"] - found["other"][name]["value"]
        assert found["difference"][name]["value"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_spread_is_that_of_a_naive_bootstrap(is_weighted: bool) -> None:
    logits, labels, _, weights = make_samples(800, seed=2)
    w = weights if is_weighted else np.ones(800, np.float32)
    found = run(logits, labels, weights=w, replicates=1000)
    rng = np.random.default_rng(3)
    p = 1 / (1 + np.exp(-logits.astype(np.float64)))
    aucs, losses = [], []
    for _ in range(150):
        rows = rng.integers(0, 800, 800)
        aucs.append(roc_auc_score(labels[rows], logits[rows], sample_weight=w[rows]))
        losses.append(log_loss(labels[rows], p[rows], sample_weight=w[rows]))
    # a standard deviation of 150 is known to 6 %, of 1000 to 2 %
    assert found["auc"]["sd"] == pytest.approx(np.std(aucs), rel=0.25)
    assert found["logloss"]["sd"] == pytest.approx(np.std(losses), rel=0.25)
    for name in ("auc", "logloss"):
        one = found[name]
        assert one["lo"] < one["mean"] < one["hi"]
        assert one["hi"] - one["lo"] == pytest.approx(2 * 1.96 * one["sd"], rel=0.15)
        assert one["mean"] == pytest.approx(one["value"], abs=0.2 * one["sd"])


def test_a_difference_is_surer_than_its_parts() -> None:
    logits, labels, others, _ = make_samples(4000, seed=4)
    difference = run(logits, labels, others)["difference"]
    assert difference["auc"]["is_clear"] and difference["auc"]["lo"] > 0  # noise was added to the other model
    assert difference["logloss"]["is_clear"] and difference["logloss"]["hi"] < 0
    near = run(logits, labels, logits + np.float32(0.01) * np.sin(np.arange(4000, dtype=np.float32)))
    assert near["difference"]["auc"]["sd"] < near["auc"]["sd"] / 20
    assert not near["difference"]["auc"]["is_clear"]


def test_the_same_samples_give_the_same_replicates_in_any_order() -> None:
    logits, labels, others, weights = make_samples(999, seed=5)
    whole = run(logits, labels, others, weights, replicates=50)
    merged = Bootstrap(50, seed=1, is_paired=True)
    for rows in np.array_split(np.random.default_rng(6).permutation(999), 7):
        part = Bootstrap(50, seed=1, is_paired=True)
        part.update(logits[rows], labels[rows], weights[rows], others[rows])
        merged.merge(part)
    assert merged.intervals() == whole
    restored = Bootstrap(50, seed=1, is_paired=True)
    restored.restore(merged.state())
    assert restored.intervals() == whole
    assert run(logits, labels, others, weights, replicates=50, seed=2) != whole


def test_one_class_nothing_and_nan_are_null_not_a_crash() -> None:
    nothing = run(np.zeros(0), np.zeros(0))
    assert nothing["auc"]["value"] is None and nothing["logloss"]["lo"] is None
    clicks = run(np.array([1.0, np.nan, 2.0]), np.ones(3))
    assert clicks["auc"] == dict.fromkeys(("value", "mean", "sd", "lo", "hi")) and clicks["logloss"]["value"] > 0
    assert json.dumps([nothing, clicks], allow_nan=False)


def test_wrong_use_is_a_typed_error() -> None:
    with pytest.raises(ConfigError, match="2 replicates"):
        Bootstrap(1)
    with pytest.raises(FailedPrecondition, match="second model"):
        Bootstrap(5, is_paired=True).update(np.zeros(2), np.zeros(2))
    with pytest.raises(FailedPrecondition, match="same length"):
        Bootstrap(5, is_paired=True).update(np.zeros(2), np.zeros(2), None, np.zeros(3))
    with pytest.raises(FailedPrecondition):
        Bootstrap(5).merge(Bootstrap(5, is_paired=True))
    with pytest.raises(Corruption):
        Bootstrap(5).restore(b"nonsense")
