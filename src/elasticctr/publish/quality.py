"""What an encoding of rows costs in quality: the same samples scored with rows as trained and as encoded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.publish import dense
from elasticctr.publish.publisher import Publisher
from elasticctr.publish.scoring import make_inputs
from elasticctr.train.learner import Learner
from elasticctr.train.metrics import Metrics


def measure_loss(
    publisher: Publisher, learner: Learner, batches: Iterable[Batch], *, has_labels: bool
) -> dict[str, Any]:
    """AUC and logloss before and after, if there are labels, and how far scores move."""
    plain, encoded = Metrics(), Metrics()
    count, total, worst = 0, 0.0, 0.0
    for batch in batches:
        schema = dense.make_serving_schema(learner, batch.schema)
        before = dense.score_batch(learner, batch)
        inputs = make_inputs(schema, batch, lambda table, f: publisher.decoded_rows(learner, table, f))
        after = dense.score_inputs(learner, inputs)
        difference = np.abs(before - after)
        count += len(batch)
        total += float(difference[:, 0].sum())
        worst = max(worst, float(difference.max(initial=0.0)))
        if has_labels:
            for metrics, scores in ((plain, before), (encoded, after)):
                metrics.update(_logits(scores[:, 0]), batch.labels[:, 0], batch.weights)
    result: dict[str, Any] = {
        "samples": count,
        "mean_score_difference": total / max(count, 1),
        "largest_score_difference": worst,
    }
    if has_labels:
        for name in ("auc", "logloss"):
            before_value, after_value = plain.as_dict().get(name), encoded.as_dict().get(name)
            result |= {f"{name}_fp32": before_value, f"{name}_encoded": after_value}
            if before_value is not None and after_value is not None:
                result[f"{name}_loss"] = (before_value - after_value) * (1 if name == "auc" else -1)
    return result


def _logits(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    clipped = np.clip(scores.astype(np.float64), 1e-12, 1 - 1e-12)
    logits: NDArray[np.float32] = np.log(clipped / (1 - clipped)).astype(np.float32)
    return logits
