"""Metrics of a binary classifier, thin over the native accumulators.

The trainer feeds each batch's logits before it learns from them (progressive evaluation), evaluation feeds a whole
split. Accumulators of different threads, processes or halves of an interrupted run merge into exactly what one
accumulator would hold. Undefined values (AUC of one class) are None. docs/reference/model-metrics.md says what
each metric is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from math import isnan, log, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.errors import ConfigError, Corruption
from elasticctr.train.metrics.window import MetricWindow

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class MetricValues:
    """Everything known about one set of predictions. None: undefined for it."""

    samples: int
    positives: float  # weighted
    negatives: float
    invalid_scores: int
    invalid_labels: int
    auc: float | None
    logloss: float | None
    ne: float | None  # normalised entropy: logloss over that of predicting the base rate
    copc: float | None  # clicks over predicted clicks
    ctr: float | None
    predicted_ctr: float | None
    pr_auc: float | None  # average precision
    rig: float | None  # relative information gain: 1 - ne
    ece: float | None  # expected calibration error over bins of equal width
    ece_mass: float | None  # the same over bins of equal weight
    gauc: float | None = None
    gauc_groups: int | None = None
    gauc_groups_skipped: int | None = None

    def as_dict(self, names: Sequence[str] | None = None) -> dict[str, int | float | None]:
        """JSON-able; only `names` if given."""
        values: dict[str, int | float | None] = asdict(self)
        return values if names is None else {name: values[name] for name in names}


METRIC_NAMES = tuple(MetricValues.__dataclass_fields__)
ECE_BINS = 20
DEFAULT_NAMES = tuple(name for name in METRIC_NAMES if not name.startswith("gauc"))


class Metrics:
    """Accumulates over batches. `names` picks what `as_dict` reports, `window` > 0 also keeps the last batches."""

    def __init__(self, names: Sequence[str] | None = None, window: int = 0) -> None:
        self.names = check_names(names) if names is not None else None
        self._all = _native.BinaryMetrics()
        self._groups: _native.GroupAuc | None = None
        self._window = MetricWindow(window)

    def update(
        self,
        logits: Array,
        labels: Array,
        weights: Array | None = None,
        groups: Array | None = None,
        *,
        are_scores: bool = False,
    ) -> None:
        """Adds a batch. `are_scores`: probabilities are given, not logits. `groups`: feasigns, for GAUC."""
        x, y = _floats(logits), _floats(labels)
        w = None if weights is None else _floats(weights)
        if are_scores:
            self._all.update_scores(x, y, w)
        else:
            self._all.update(x, y, w)
        if groups is not None:
            if self._groups is None:
                self._groups = _native.GroupAuc()
            self._groups.update(np.ascontiguousarray(groups, dtype=np.uint64), x, y, w)
        if self._window.is_kept:
            if are_scores:
                p = np.clip(x.astype(np.float64), 2.0**-23, 1 - 2.0**-23)
                x = np.where((x >= 0) & (x <= 1), np.log(p / (1 - p)), np.nan).astype(np.float32)
            self._window.append(x, y, w)

    def auc(self) -> float | None:
        """What `compute` says of AUC, without the rest, which takes eight times as long."""
        return _defined(self._all.auc())

    def compute(self) -> MetricValues:
        return _values(self._all, self._groups, self._all.auc())

    def compute_window(self) -> MetricValues:
        """Of the last `window` batches; AUC exact, without GAUC."""
        x, y, w = self._window.samples()
        part = _native.BinaryMetrics()
        part.update(x, y, w)
        return _values(part, None, _native.exact_auc(x, y, w))

    def as_dict(self) -> dict[str, int | float | None]:
        """`compute`, as JSON-able values of the chosen names; without a choice, all that are not GAUC of no groups."""
        values = self.compute()
        if self.names is not None:
            return values.as_dict(self.names)
        return values.as_dict(METRIC_NAMES if self._groups is not None else DEFAULT_NAMES)

    def ranking(self, k: int) -> dict[str, int | float | None]:
        """NDCG and recall of the first `k` of each group, JSON-able. None without groups, or without a positive."""
        ndcg, recall, groups, skipped = self._groups.rank(k) if self._groups is not None else (nan, nan, 0, 0)
        return {
            f"ndcg@{k}": _defined(ndcg),
            f"recall@{k}": _defined(recall),
            "ranked_groups": groups,
            "ranked_groups_skipped": skipped,
        }

    def bounds(self) -> dict[str, float | None]:
        """How far `auc` and `pr_auc` can be from exact ones because logits of one bucket count as equal."""
        return {"auc": _defined(self._all.auc_bound()), "pr_auc": _defined(self._all.average_precision()[1])}

    def curves(self, bins: int = 20, roc_points: int = 200) -> dict[str, Any]:
        """What plots and reports show besides, JSON-able.

        `bounds`: how far AUC and PR-AUC can be off.
        `roc`: [false positive rate, true positive rate] pairs. `calibration`: rows of equal weight,
        `calibration_width`: rows of equal width, each {lower, upper, weight, positives, predicted, actual}.
        `scores`: how predictions are spread, {edges, positive, negative} with the share of each class per bin.
        """
        return {
            "bounds": self.bounds(),
            "roc": [[float(x), float(y)] for x, y in self._all.roc(roc_points)],
            "calibration": _calibration_rows(self._all.calibration(bins, True)),
            "calibration_width": _calibration_rows(self._all.calibration(bins, False)),
            "scores": _score_histogram(self._all.calibration(1 << 14, False)),
        }

    def merge(self, other: Metrics) -> None:
        """Adds what `other` has seen. Windows are not merged."""
        self._all.merge(other._all)
        if other._groups is not None:
            if self._groups is None:
                self._groups = _native.GroupAuc()
            self._groups.merge(other._groups)

    def merge_state(self, state: bytes) -> None:
        """`merge` of what was saved, in time that grows with what is in it. Raises Corruption and changes nothing."""
        whole, groups, _ = _take_parts(state)
        theirs = _restore_groups(groups)
        self._all.merge_state(whole)
        if theirs is not None:
            if self._groups is None:
                self._groups = theirs
            else:
                self._groups.merge(theirs)

    @staticmethod
    def check_state(state: bytes) -> None:
        """Raises what `merge_state` would."""
        whole, groups, _ = _take_parts(state)
        _native.BinaryMetrics.check_state(whole)
        _restore_groups(groups)

    def state(self) -> bytes:
        """Bytes for a checkpoint."""
        return self._join_parts(self._all.state())

    def take(self) -> bytes:
        """`state`, then starts from zero. Windows are kept."""
        state = self._join_parts(self._all.take())
        self._groups = None
        return state

    def _join_parts(self, whole: bytes) -> bytes:
        parts = [whole, b"" if self._groups is None else self._groups.state(), self._window.state()]
        return b"".join(struct.pack("<Q", len(part)) + part for part in parts)

    def restore(self, state: bytes) -> None:
        """Replaces what was seen so far by a saved state. Raises Corruption."""
        whole, groups, window = _take_parts(state)
        self._all.restore(whole)
        self._groups = _restore_groups(groups)
        self._window.restore(window)

    @classmethod
    def from_state(cls, state: bytes, names: Sequence[str] | None = None, window: int = 0) -> Metrics:
        metrics = cls(names, window)
        metrics.restore(state)
        return metrics


def exact_auc(scores: Array, labels: Array, weights: Array | None = None) -> float | None:
    """AUC by sorting: exact for final evaluation, where the running one is to about 1e-7. None for one class."""
    return _defined(_native.exact_auc(_floats(scores), _floats(labels), None if weights is None else _floats(weights)))


def group_ids(values: Array, offsets: Array) -> NDArray[np.uint64]:
    """The first feasign of each sample of a slot (`Batch.slot`), 0 where it has none: the groups of GAUC."""
    ids = np.zeros(len(offsets) - 1, np.uint64)
    has_value = offsets[1:] > offsets[:-1]
    ids[has_value] = values[offsets[:-1][has_value]]
    return ids


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in METRIC_NAMES:
            near = get_close_matches(name, METRIC_NAMES, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(METRIC_NAMES)}"
            raise ConfigError(f"unknown metric {name!r}; {hint}")
    return tuple(names)


def _values(part: _native.BinaryMetrics, groups: _native.GroupAuc | None, auc: float) -> MetricValues:
    positives, negatives = part.positive, part.negative
    total, predicted = positives + negatives, part.predicted_sum
    logloss = part.loss_sum / total if total > 0 else None
    ne = None
    if logloss is not None and positives > 0 and negatives > 0:
        p = positives / total
        ne = logloss / -(p * log(p) + (1 - p) * log(1 - p))
    gauc, counted, skipped = (None, None, None) if groups is None else groups.compute()[:3]
    return MetricValues(
        samples=part.samples,
        positives=positives,
        negatives=negatives,
        invalid_scores=part.invalid_scores,
        invalid_labels=part.invalid_labels,
        auc=_defined(auc),
        logloss=logloss,
        ne=ne,
        copc=positives / predicted if predicted > 0 else None,
        ctr=positives / total if total > 0 else None,
        predicted_ctr=predicted / total if total > 0 else None,
        pr_auc=_defined(part.average_precision()[0]),
        rig=None if ne is None else 1 - ne,
        ece=_defined(part.calibration_error(ECE_BINS, False)),
        ece_mass=_defined(part.calibration_error(ECE_BINS, True)),
        gauc=None if gauc is None else _defined(gauc),
        gauc_groups=counted,
        gauc_groups_skipped=skipped,
    )


def _calibration_rows(rows: NDArray[np.float64]) -> list[dict[str, float]]:
    return [
        {
            "lower": lower,
            "upper": upper,
            "weight": weight,
            "positives": positives,
            "predicted": predicted,
            "actual": positives / weight,
        }
        for lower, upper, weight, positives, predicted in rows.tolist()
    ]


def _score_histogram(rows: NDArray[np.float64], bins: int = 50) -> dict[str, list[float]]:
    """Equal bins up to the score that 99.9 % of samples stay below: click rates are often far from 1."""
    if len(rows) == 0:
        return {"edges": [], "positive": [], "negative": []}
    weight, positive, score = rows[:, 2], rows[:, 3], rows[:, 4]
    reach = np.searchsorted(np.cumsum(weight), 0.999 * weight.sum())
    edges = np.linspace(0.0, max(float(score[min(reach, len(score) - 1)]), 1e-6), bins + 1)
    inside = np.minimum(score, edges[-1])
    shares = {"edges": edges.tolist()}
    for name, mass in (("positive", positive), ("negative", weight - positive)):
        shares[name] = (np.histogram(inside, edges, weights=mass)[0] / max(mass.sum(), 1e-300)).tolist()
    return shares


def _restore_groups(state: bytes) -> _native.GroupAuc | None:
    if not state:
        return None
    groups = _native.GroupAuc()
    groups.restore(state)
    return groups


def _take_parts(state: bytes) -> tuple[bytes, bytes, bytes]:
    whole, rest = _take_part(state)
    groups, rest = _take_part(rest)
    window, rest = _take_part(rest)
    if rest:
        raise Corruption("saved metrics are longer than they say; use an older checkpoint")
    return whole, groups, window


def _take_part(state: bytes) -> tuple[bytes, bytes]:
    if len(state) < 8 or len(state) - 8 < (size := struct.unpack_from("<Q", state)[0]):
        raise Corruption("saved metrics are cut short; use an older checkpoint")
    return state[8 : 8 + size], state[8 + size :]


def _floats(array: Array) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, dtype=np.float32).reshape(-1)


def _defined(value: float) -> float | None:
    return None if isnan(value) else value
