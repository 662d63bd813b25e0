"""Measures what an encoding of rows costs: the same samples scored with rows as trained and as encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.publish import dense
from elasticctr.publish.publisher import Publisher
from elasticctr.train.learner import Learner
from elasticctr.train.metrics.label_metrics import LABELS, LabelMetrics, values_of
from elasticctr.versions.scoring import make_inputs


def measure_loss(
    publisher: Publisher, learner: Learner, batches: Iterable[Batch], *, has_labels: bool
) -> dict[str, Any]:
    """AUC and logloss before and after, if there are labels, and how much scores change."""
    labels = learner.metrics.labels
    plain, encoded = LabelMetrics(labels), LabelMetrics(labels)
    count, total, worst = 0, 0.0, 0.0
    for batch in batches:
        schema = dense.make_serving_schema(learner, batch.schema)
        before = dense.score_batch(learner, batch)
        inputs = make_inputs(schema, batch, lambda table, f: publisher.decoded_rows(learner, table, f))
        after = dense.score_inputs(learner, inputs)
        difference = np.abs(before - after)
        count += len(batch)
        total += float(difference.sum()) / len(labels)
        worst = max(worst, float(difference.max(initial=0.0)))
        if has_labels:
            for metrics, scores in ((plain, before), (encoded, after)):
                metrics.update(_logits(scores), batch.labels, batch.weights)
    result: dict[str, Any] = {
        "samples": count,
        "mean_score_difference": total / max(count, 1),
        "largest_score_difference": worst,
    }
    if has_labels:
        was, became = values_of(plain.as_dict()), values_of(encoded.as_dict())
        result |= _compare(was, became)
        if LABELS in was:
            result[LABELS] = {name: _compare(was[LABELS][name], became[LABELS][name]) for name in labels}
    return result


def _compare(was: Mapping[str, Any], became: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("auc", "logloss"):
        found |= {f"{name}_fp32": was.get(name), f"{name}_encoded": became.get(name)}
        if was.get(name) is not None and became.get(name) is not None:
            found[f"{name}_loss"] = (was[name] - became[name]) * (1 if name == "auc" else -1)
    return found


def _logits(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    clipped = np.clip(scores.astype(np.float64), 1e-12, 1 - 1e-12)
    logits: NDArray[np.float32] = np.log(clipped / (1 - clipped)).astype(np.float32)
    return logits
