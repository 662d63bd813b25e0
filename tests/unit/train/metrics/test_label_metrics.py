"""Every label's metrics are those of a Metrics of its own, however they were split, merged and saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticctr.errors import Corruption, FailedPrecondition
from elasticctr.train.metrics.label_metrics import LabelMetrics, describe, pick, split_labels, values_of
from elasticctr.train.metrics.metrics import Metrics

LABELS = ("click", "buy")


def batch(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    logits = random.normal(size=(n, 2)).astype(np.float32)
    labels = (random.random((n, 2)) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return logits, labels, random.random(n).astype(np.float32), random.integers(0, 9, n).astype(np.uint64)


def alone(column: int, *seeds: int) -> dict[str, Any]:
    metrics = Metrics()
    for seed in seeds:
        logits, labels, weights, groups = batch(seed)
        metrics.update(logits[:, column], labels[:, column], weights, groups)
    return {**metrics.as_dict(), **metrics.curves()}


def test_each_label_has_metrics_of_its_own_and_the_first_ones_stand_on_top() -> None:
    metrics = LabelMetrics(LABELS)
    metrics.update(*batch(1))
    metrics.update(*batch(2))
    expected = {name: alone(column, 1, 2) for column, name in enumerate(LABELS)}
    assert metrics.report() == {**expected["click"], "labels": expected}
    assert metrics.compute().auc == expected["click"]["auc"]
    assert metrics["buy"].compute().auc == expected["buy"]["auc"]
    assert metrics.figures("auc") == {"labels": {name: {"auc": expected[name]["auc"]} for name in LABELS}}


def test_one_label_reports_and_saves_as_it_always_did() -> None:
    metrics, plain = LabelMetrics(("click",)), Metrics()
    logits, labels, weights, _ = batch(1)
    metrics.update(logits[:, 0], labels[:, :1], weights)
    plain.update(logits[:, 0], labels[:, 0], weights)
    assert metrics.as_dict() == plain.as_dict()
    assert metrics.figures("auc") == {}
    assert metrics.state() == plain.state()


def test_parts_merged_after_saving_are_the_whole() -> None:
    parts = [LabelMetrics(LABELS) for _ in range(2)]
    for seed, part in enumerate(parts):
        part.update(*batch(seed))
    whole = LabelMetrics(LABELS)
    whole.update(*batch(7))
    whole.restore(parts[0].state())  # in place of what it had seen
    whole.merge(LabelMetrics.from_state(parts[1].state()))
    assert whole.report()["labels"] == {name: alone(column, 0, 1) for column, name in enumerate(LABELS)}


def test_what_is_taken_piece_by_piece_and_merged_is_the_whole() -> None:
    source, whole = LabelMetrics(LABELS), LabelMetrics(LABELS)
    for seed in range(3):
        source.update(*batch(seed))
        state = source.take()
        whole.check_state(state)
        whole.merge_state(state)
        assert source.as_dict()["samples"] == 0 and source.state() == LabelMetrics(LABELS).state()
    assert whole.report()["labels"] == {name: alone(column, 0, 1, 2) for column, name in enumerate(LABELS)}


def test_what_cannot_be_merged_changes_nothing() -> None:
    mine, theirs = LabelMetrics(LABELS), LabelMetrics(LABELS)
    mine.update(*batch(1))
    theirs.update(*batch(2, 5))
    before, state = mine.state(), theirs.state()
    for at in range(0, len(state), 17):
        damaged = bytearray(state)
        damaged[at] ^= 1
        for use in (mine.check_state, mine.merge_state):
            with pytest.raises(Corruption):
                use(bytes(damaged))
    with pytest.raises(FailedPrecondition, match="same job"):
        mine.merge_state(LabelMetrics(("click",)).state())
    assert mine.state() == before


def test_metrics_of_other_labels_are_refused() -> None:
    mine = LabelMetrics(LABELS)
    with pytest.raises(FailedPrecondition, match="buy, click"):
        mine.merge(LabelMetrics(("buy", "click")))
    with pytest.raises(FailedPrecondition, match="same job"):
        mine.restore(LabelMetrics(("click",)).state())


def test_every_damaged_state_is_refused() -> None:
    metrics = LabelMetrics(LABELS)
    metrics.update(*batch(1, 5))
    state = metrics.state()
    for at in range(0, len(state), 211):
        damaged = bytearray(state)
        damaged[at] ^= 1
        with pytest.raises(Corruption):
            LabelMetrics.from_state(bytes(damaged))
        with pytest.raises(Corruption):
            LabelMetrics.from_state(state[:at])


def test_reports_for_people() -> None:
    report: dict[str, Any] = {
        "auc": 0.7,
        "logloss": 0.5,
        "roc": [],
        "labels": {"click": {"auc": 0.7, "logloss": 0.5, "roc": []}},
    }
    report["labels"]["buy"] = {"auc": None, "logloss": None, "roc": []}
    values = values_of(report)
    assert values == {
        "auc": 0.7,
        "logloss": 0.5,
        "labels": {"click": {"auc": 0.7, "logloss": 0.5}, "buy": {"auc": None, "logloss": None}},
    }
    assert describe(values) == "click: auc 0.70000  logloss 0.50000  buy: auc -  logloss -"
    assert pick(values, "buy") == {"auc": None, "logloss": None}
    assert pick(values, None) is values
    assert list(split_labels({"valid": values, "test": {"auc": 0.6}})) == ["valid click", "valid buy", "test"]
