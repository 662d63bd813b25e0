"""Metrics per group (GAUC, NDCG, recall) against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import ndcg_score, roc_auc_score
from tests.unit.train.metrics.samples import make_samples

from elasticctr.errors import ConfigError
from elasticctr.train.metrics.metrics import Metrics, group_ids


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
