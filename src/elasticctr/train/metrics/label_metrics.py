"""Metrics of every label a model predicts: one `Metrics` each, fed, merged, saved and reported together.

The first label is the one a run is judged by unless its settings say otherwise, so its values stand at the top of a
report; with several labels the key `labels` holds those of each, by name.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.errors import Corruption, FailedPrecondition
from elasticctr.train.metrics.metrics import Metrics, MetricValues

Array = NDArray[Any]

LABELS = "labels"  # the key of a report under which each label's values are
_HEAD = struct.Struct("<4sII")  # magic, format, labels
_MAGIC, _FORMAT = b"ECLM", 1


class LabelMetrics:
    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self._each = [Metrics() for _ in self.labels]

    def update(self, logits: Array, labels: Array, weights: Array | None = None, groups: Array | None = None) -> None:
        """Adds a batch: logits [n] or [n, labels], labels of as many elements, weights [n], group ids [n]."""
        logits = logits.reshape(-1, len(self.labels))
        labels = labels.reshape(-1, len(self.labels))
        for column, metrics in enumerate(self._each):
            metrics.update(logits[:, column], labels[:, column], weights, groups)

    def __getitem__(self, label: str) -> Metrics:
        return self._each[self.labels.index(label)]

    def auc(self) -> float | None:
        """Of the first label."""
        return self._each[0].auc()

    def compute(self) -> MetricValues:
        """Of the first label."""
        return self._each[0].compute()

    def as_dict(self) -> dict[str, Any]:
        """The first label's figures and, of several labels, each one's."""
        return self._describe([metrics.as_dict() for metrics in self._each])

    def figures(self, *names: str) -> dict[str, Any]:
        """Chosen figures of each label, as a report holds them; nothing where there is one label."""
        if len(self.labels) == 1:
            return {}
        each = {label: metrics.compute() for label, metrics in zip(self.labels, self._each, strict=True)}
        return {LABELS: {label: values.as_dict(names) for label, values in each.items()}}

    def report(self, top_k: int | None = None) -> dict[str, Any]:
        """`as_dict` with curves; with `top_k`, also how good the first k of each group are."""
        return self._describe(
            [
                {
                    **metrics.as_dict(),
                    **(metrics.ranking(top_k) if top_k is not None else {}),
                    **metrics.curves(),
                }
                for metrics in self._each
            ]
        )

    def _describe(self, each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        if len(each) == 1:
            return dict(each[0])
        return {**each[0], LABELS: dict(zip(self.labels, each, strict=True))}

    def merge(self, other: LabelMetrics) -> None:
        """Adds what `other` has seen."""
        self._check_labels(other.labels)
        for mine, theirs in zip(self._each, other._each, strict=True):
            mine.merge(theirs)

    def merge_state(self, state: bytes) -> None:
        """`merge` of what was saved, without making accumulators of it. Raises Corruption, FailedPrecondition."""
        self.check_state(state)
        _, states = _take_labels(state, self.labels[:1])
        for mine, one in zip(self._each, states, strict=True):
            mine.merge_state(one)

    def check_state(self, state: bytes) -> None:
        """Raises what `merge_state` would."""
        labels, states = _take_labels(state, self.labels[:1])
        for one in states:
            Metrics.check_state(one)
        self._check_labels(labels)

    def state(self) -> bytes:
        """Bytes for a checkpoint; for one label, those of its `Metrics` (docs/reference/model-metrics.md)."""
        return self._join([metrics.state() for metrics in self._each])

    def take(self) -> bytes:
        """`state`, then starts from zero."""
        return self._join([metrics.take() for metrics in self._each])

    def _join(self, states: Sequence[bytes]) -> bytes:
        if len(states) == 1:
            return states[0]
        parts = [_HEAD.pack(_MAGIC, _FORMAT, len(self.labels))]
        for label, state in zip(self.labels, states, strict=True):
            parts += [_sized(label.encode()), _sized(state)]
        body = b"".join(parts)
        return body + struct.pack("<I", _native.crc32c(body))

    def _check_labels(self, labels: Sequence[str]) -> None:
        if len(self.labels) != len(labels) or (len(self.labels) > 1 and self.labels != tuple(labels)):
            raise FailedPrecondition(
                f"metrics of labels {', '.join(labels)} cannot be added to those of {', '.join(self.labels)}; "
                "do all processes have the same job?"
            )

    def restore(self, state: bytes) -> None:
        """Replaces what was seen so far by a saved state. Raises Corruption, FailedPrecondition."""
        saved = LabelMetrics.from_state(state, self.labels[:1])
        empty = LabelMetrics(self.labels)
        empty.merge(saved)
        self._each = saved._each

    @classmethod
    def from_state(cls, state: bytes, only: Sequence[str] = ("label",)) -> LabelMetrics:
        """What was saved. `only` is the name of the label where there was one, which is not saved then."""
        labels, states = _take_labels(state, only[:1])
        metrics = cls(labels)
        for each, one in zip(metrics._each, states, strict=True):
            each.restore(one)
        return metrics


def _take_labels(state: bytes, only: Sequence[str]) -> tuple[list[str], list[bytes]]:
    """The labels of a saved state and the state of each."""
    if not state.startswith(_MAGIC):
        return list(only), [state]
    body = state[:-4]
    if len(state) < _HEAD.size + 4 or struct.pack("<I", _native.crc32c(body)) != state[-4:]:
        raise Corruption("saved metrics are damaged; use an older checkpoint")
    _, version, count = _HEAD.unpack_from(body)
    if version != _FORMAT:
        raise Corruption(f"saved metrics have format {version}, this program reads {_FORMAT}")
    rest = body[_HEAD.size :]
    labels, states = [], []
    for _ in range(count):
        name, rest = _take(rest)
        one, rest = _take(rest)
        labels.append(name.decode(errors="replace"))
        states.append(one)
    if rest or not labels:
        raise Corruption("saved metrics contradict themselves; use an older checkpoint")
    return labels, states


def values_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """The single figures of a report, without curves: the first label's, and each one's where there are several."""
    values: dict[str, Any] = {k: v for k, v in report.items() if not isinstance(v, list | dict)}
    if LABELS in report:
        values[LABELS] = {name: values_of(one) for name, one in report[LABELS].items()}
    return values


def pick(values: Mapping[str, Any], label: str | None) -> Mapping[str, Any]:
    """One label's values of a report, or the first one's."""
    each = values.get(LABELS)
    if label is None or each is None:
        return values
    found: Mapping[str, Any] = each[label]
    return found


def split_labels(by_split: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Reports by split as reports by split and label, for tables and plots; unchanged where there is one label."""
    found: dict[str, Mapping[str, Any]] = {}
    for split, report in by_split.items():
        each = report.get(LABELS)
        found |= {split: report} if each is None else {f"{split} {label}": one for label, one in each.items()}
    return found


def describe(values: Mapping[str, Any]) -> str:
    """AUC and logloss in one readable line."""
    if LABELS in values:
        return "  ".join(f"{name}: {describe(one)}" for name, one in values[LABELS].items())
    auc, logloss = ("-" if values.get(name) is None else f"{float(values[name]):.5f}" for name in ("auc", "logloss"))
    return f"auc {auc}  logloss {logloss}"


def _sized(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _take(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < 8 or len(data) - 8 < (size := struct.unpack_from("<Q", data)[0]):
        raise Corruption("saved metrics are cut short; use an older checkpoint")
    return data[8 : 8 + size], data[8 + size :]
