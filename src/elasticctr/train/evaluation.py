"""Scores a data set with a trained model: for metrics, or to be written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from elasticctr.data.batch import Batch
from elasticctr.data.dataset import Dataset
from elasticctr.obs.progress import Progress
from elasticctr.train.learner import Learner
from elasticctr.train.metrics.analysis import Analysis, find_slot
from elasticctr.train.metrics.label_metrics import LabelMetrics
from elasticctr.train.metrics.metrics import group_ids
from elasticctr.train.reading import read_ahead


def score(learner: Learner, dataset: Dataset, *, batch_size: int) -> Iterator[tuple[Batch, NDArray[np.float32]]]:
    """Batches with the logits of their samples, [n] or [n, labels], in the order of the data."""
    for item in read_ahead(dataset, learner.look_up, batch_size=batch_size):
        yield item.batch, learner.predict(item)


def evaluate(
    learner: Learner,
    dataset: Dataset,
    *,
    batch_size: int,
    gauc_slot: str | None = None,
    top_k: int | None = None,
    analysis: Analysis | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Metrics of every label over a whole data set, curves included; with `top_k`, of the groups' first as well."""
    group = find_group(dataset, gauc_slot)
    metrics = LabelMetrics(dataset.schema.label)
    with Progress("evaluating", console=Console(quiet=True) if quiet else None) as progress:
        for batch, logits in score(learner, dataset, batch_size=batch_size):
            metrics.update(
                logits,
                batch.labels,
                batch.weights,
                None if group is None else group_ids(*batch.slot(group)),
            )
            if analysis is not None:
                analysis.update(batch, logits)
            progress.advance(len(batch))
    report = metrics.report(top_k)
    return report if analysis is None else {**report, **analysis.results()}


def find_group(dataset: Dataset, slot: str | None) -> int | None:
    """The number of the slot that groups samples, among the sparse ones."""
    return None if slot is None else find_slot(dataset.schema, slot)
