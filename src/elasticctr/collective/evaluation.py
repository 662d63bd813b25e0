"""Scores a data set with all ranks, each its chunks; the metrics are those of all samples together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elasticctr.collective.group import Group
from elasticctr.collective.learner import CollectiveLearner, merge_metrics
from elasticctr.collective.work import EpochLedger, deal, read_chunks
from elasticctr.data.chunks import Chunk
from elasticctr.data.pipeline import Stats
from elasticctr.data.settings import DataSettings
from elasticctr.train.job import Job
from elasticctr.train.metrics.label_metrics import LabelMetrics
from elasticctr.train.metrics.metrics import group_ids


def evaluate(
    job: Job, group: Group, learner: CollectiveLearner, chunks: Sequence[Chunk], settings: DataSettings
) -> tuple[dict[str, Any], Stats]:
    """Metrics with their curves, and what was read. Every rank calls it and gets the same."""
    learner.agree()
    slot = job.train.gauc_slot
    column = None if slot is None else [s.name for s in job.samples.sparse].index(slot)
    metrics, ledger = LabelMetrics(job.samples.label), EpochLedger()
    rounds = deal(chunks, ledger, group.rank, group.size)
    work = [one for chosen in rounds for one in chosen]
    batches = read_chunks(work, job.samples, settings, job.train.eval_batch_size, learner.plan.look_up)
    try:
        while True:
            own = next(batches, None)
            item = own.item if own is not None else None
            logits, notes = learner.predict(item, int(own is None))
            if notes.all():
                break
            if own is not None:
                ledger.take(own)
            if item is not None and logits is not None:
                batch = item.batch
                groups = None if column is None else group_ids(*batch.slot(column))
                metrics.update(np.asarray(logits), batch.labels, batch.weights, groups)
    finally:
        batches.close()
    merged = merge_metrics(group, metrics)
    stats = ledger.join(gather_ledgers(group, ledger)).stats
    return merged.report(), stats


def gather_ledgers(group: Group, ledger: EpochLedger) -> list[EpochLedger]:
    """Those of all ranks, by rank."""
    return [EpochLedger.from_dict(value) for value in group.gather(ledger.as_dict())]
