"""A chunk of an evaluation counts once, however often it was started."""

from __future__ import annotations

import numpy as np

from elasticctr.data.chunks import Chunk
from elasticctr.ps.coordinator.evaluation import Evaluation
from elasticctr.train.metrics.label_metrics import LabelMetrics


def scored(samples: int) -> bytes:
    metrics = LabelMetrics(["click"])
    labels = (np.arange(samples) % 2).astype(np.float32)
    metrics.update(labels - 0.5, labels, np.ones(samples, np.float32))
    return metrics.state()


def test_a_chunk_counts_once_it_is_scored_to_its_end_however_often_it_was_begun() -> None:
    first, second = (Chunk(f"part-{n}", "file", number=n) for n in range(2))
    evaluation = Evaluation("valid", [first, second], ["click"])
    evaluation.hold(first.id, scored(10))
    evaluation.hold(second.id, scored(20))
    assert evaluation.metrics.as_dict()["samples"] == 0
    evaluation.forget([first.id])  # its trainer died
    evaluation.count(second.id, scored(4))
    assert evaluation.metrics.as_dict()["samples"] == 24
    evaluation.hold(first.id, scored(10))
    evaluation.count(first.id, None)
    assert evaluation.metrics.as_dict()["samples"] == 34
