"""How a model does on the samples of each value of a slot: calibration per value, and the worst values ("segments").

Among thousands of values some look bad by chance alone. A value is reported only if chance explains it badly enough for
all values tested together (Benjamini-Hochberg at 5 %). docs/reference/model-metrics.md has the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import erfc, sqrt
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.errors import ConfigError
from elasticctr.train.metrics.metrics import group_ids

Array = NDArray[Any]
Floats = NDArray[np.float64]
SegmentOrder = Literal["calibration", "loss", "auc"]
MAX_VALUES = 1 << 18
_MIN_OF_CLASS = 10.0  # clicks, and samples without one, before the loss or AUC of a value is tested
_Z = 1.959963984540054  # 95 %


@dataclass(frozen=True, slots=True)
class TestedSegment:
    """One value that was tested."""

    value: int
    p_value: float
    rank: float  # the larger the worse
    figures: dict[str, Any]


class SlotSegments:
    """One slot's values. Sums per value take bounded memory; `auc` keeps every sample (20 bytes) besides."""

    def __init__(self, by: SegmentOrder = "calibration", max_values: int = MAX_VALUES) -> None:
        if by not in get_args(SegmentOrder):
            raise ConfigError(f"segments are ordered by {', '.join(get_args(SegmentOrder))}, not by {by!r}")
        self.by = by
        self._sums = _native.SegmentMetrics(max_values)
        self._groups = _native.GroupAuc() if by == "auc" else None

    def update(self, values: Array, offsets: Array, logits: Array, labels: Array, weights: Array | None = None) -> None:
        """Adds a batch: `values` and `offsets` as of `Batch.slot`."""
        x, y = _floats(logits), _floats(labels)
        w = None if weights is None else _floats(weights)
        feasigns = np.ascontiguousarray(values, dtype=np.uint64)
        self._sums.update(feasigns, np.ascontiguousarray(offsets, dtype=np.int32), x, y, w)
        if self._groups is not None:
            self._groups.update(group_ids(feasigns, offsets), x, y, w)

    def merge(self, other: SlotSegments) -> None:
        self._sums.merge(other._sums)
        if self._groups is not None and other._groups is not None:
            self._groups.merge(other._groups)

    def calibration(self) -> dict[str, Any]:
        """`field_ece`: mean over samples of |clicks - predicted clicks| of their value, per show; `field_rce`: the same
        relative to the value's clicks, over values that have some. `values`: how many it is of, `values_share` of all.
        """
        _, rows = self._sums.rows()
        weight, clicks, predicted = rows[:, 1], rows[:, 2], rows[:, 3]
        gap = np.abs(clicks - predicted)
        has_clicks = clicks > 0
        total, clicked = float(weight.sum()), float(weight[has_clicks].sum())
        relative = weight[has_clicks] * gap[has_clicks] / clicks[has_clicks]
        return {
            "field_ece": float(gap.sum()) / total if total > 0 else None,
            "field_rce": float(relative.sum()) / clicked if clicked > 0 else None,
            "values": len(rows),
            "values_share": 2.0**-self._sums.level,
        }

    def test(self, min_samples: int) -> list[TestedSegment]:
        """Every value of at least `min_samples` samples, with how well chance explains it."""
        if self._groups is not None:
            return _test_auc(*self._groups.rows(min_samples))
        values, rows = self._sums.rows()
        weight, clicks, loss = rows[:, 1].sum(), rows[:, 2].sum(), rows[:, 4].sum()
        ne = loss / weight / _entropy(clicks / weight) if 0 < clicks < weight else None
        is_tested = (rows[:, 0] >= min_samples) & (rows[:, 1] > 0)
        chosen = zip(values[is_tested].tolist(), rows[is_tested], strict=True)
        if self.by == "calibration":
            return [_test_calibration(value, row) for value, row in chosen]
        return [found for value, row in chosen if ne is not None and (found := _test_loss(value, row, ne)) is not None]


def report_segments(
    slots: dict[str, SlotSegments], *, min_samples: int, limit: int = 20, false_share: float = 0.05
) -> dict[str, Any]:
    """By slot: calibration, how many values were tested, the worst `limit` of those that are not chance. JSON-able."""
    tested = {name: slot.test(min_samples) for name, slot in slots.items()}
    cut = find_cut([found.p_value for each in tested.values() for found in each], false_share)
    report = {}
    for name, slot in slots.items():
        found = [one for one in tested[name] if one.p_value <= cut and one.rank > 0]
        found.sort(key=lambda one: (-one.rank, one.value))
        report[name] = {
            **slot.calibration(),
            "by": slot.by,
            "min_samples": min_samples,
            "tested": len(tested[name]),
            "found": len(found),
            "worst": [{"value": str(f.value), **f.figures, "p_value": f.p_value} for f in found[:limit]],
        }
    return report


def find_cut(p_values: Sequence[float], false_share: float) -> float:
    """The largest p-value that counts, so that at most `false_share` of those found are chance on average; -1: none."""
    rising = np.sort(np.asarray(p_values, dtype=np.float64))
    passing = np.nonzero(rising <= false_share * (np.arange(len(rising)) + 1) / max(len(rising), 1))[0]
    return float(rising[passing[-1]]) if len(passing) else -1.0


def _test_calibration(value: int, row: Floats) -> TestedSegment:
    """Chernoff and Hoeffding's bound: holds for few clicks too, where a normal approximation raises false alarms."""
    samples, weight, clicks, predicted, _, squares = row[:6]
    actual, expected = clicks / weight, min(max(predicted / weight, 1e-12), 1 - 1e-12)
    count = weight * weight / squares  # samples of equal weight that would tell as much
    p_value = min(1.0, 2.0 * np.exp(-count * _divergence(actual, expected)))
    lo, hi = _wilson(actual, count)
    sure = max(lo - expected, expected - hi, 0.0)
    figures = _figures(samples, weight, actual, predicted)
    return TestedSegment(value, float(p_value), sure * weight, {**figures, "ctr_lo": lo, "ctr_hi": hi})


def _test_loss(value: int, row: Floats, ne: float) -> TestedSegment | None:
    """Against the loss that the value's own click rate and the normalised entropy of all samples make one expect."""
    samples, weight, clicks, predicted, loss, squares, crossed, squared = row
    actual, mean = clicks / weight, loss / weight
    count = weight * weight / squares
    if min(actual, 1 - actual) * count < _MIN_OF_CLASS:
        return None
    deviation = sqrt(max(squared - 2 * mean * crossed + mean * mean * squares, 0.0)) / weight
    expected = ne * _entropy(actual)
    if deviation <= 0:
        return None
    figures = {
        **_figures(samples, weight, actual, predicted),
        "logloss": mean,
        "logloss_sd": deviation,
        "logloss_expected": expected,
    }
    return TestedSegment(value, _upper_tail((mean - expected) / deviation), mean - expected - _Z * deviation, figures)


def _test_auc(values: NDArray[np.uint64], rows: Floats) -> list[TestedSegment]:
    """Against the mean AUC of the values themselves: that of all samples also has what tells values apart."""
    weight, clicks, auc = rows[:, 1], rows[:, 2], rows[:, 3]
    enough = (np.minimum(clicks, weight - clicks) >= _MIN_OF_CLASS) & ~np.isnan(rows[:, 4])
    if not enough.any():
        return []
    mean = float(np.average(auc[enough], weights=weight[enough]))
    found = []
    for value, (samples, shows, clicked, own, deviation) in zip(values[enough].tolist(), rows[enough], strict=True):
        # A deviation of 0 (all pairs lost) is an artefact of few samples.
        deviation = max(deviation, 0.5 / sqrt(clicked * (shows - clicked)))
        figures = {"samples": int(samples), "weight": shows, "ctr": clicked / shows, "auc": own, "auc_sd": deviation}
        figures["auc_expected"] = mean
        found.append(TestedSegment(value, _upper_tail((mean - own) / deviation), mean - own - _Z * deviation, figures))
    return found


def _figures(samples: float, weight: float, actual: float, predicted: float) -> dict[str, Any]:
    copc = actual * weight / predicted if predicted > 0 else None
    shown = {"ctr": actual, "predicted_ctr": predicted / weight, "copc": copc}
    return {"samples": int(samples), "weight": float(weight)} | {
        k: None if v is None else float(v) for k, v in shown.items()
    }


def _wilson(rate: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a rate seen in `count` samples, after Wilson."""
    spread = _Z * sqrt(rate * (1 - rate) / count + _Z * _Z / (4 * count * count))
    middle, scale = rate + _Z * _Z / (2 * count), 1 + _Z * _Z / count
    return float(max((middle - spread) / scale, 0.0)), float(min((middle + spread) / scale, 1.0))


def _divergence(p: float, q: float) -> float:
    first = p * np.log(p / q) if p > 0 else 0.0
    second = (1 - p) * np.log((1 - p) / (1 - q)) if p < 1 else 0.0
    return max(float(first + second), 0.0)


def _entropy(p: float) -> float:
    return float(-(p * np.log(p) + (1 - p) * np.log(1 - p)))


def _upper_tail(z: float) -> float:
    return 0.5 * erfc(z / sqrt(2.0))


def _floats(array: Array) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, dtype=np.float32).reshape(-1)
