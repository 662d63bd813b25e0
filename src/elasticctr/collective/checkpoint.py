"""Checkpoints of a collective run, in parts: each rank writes its share of every table, rank 0 everything else.

The directory is that of docs/formats/checkpoint.md, so one process, or any other number of ranks or pservers, can
resume from it. All ranks need the same run directory: on a shared file system if they are on several machines.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elasticctr.collective.group import Group
from elasticctr.collective.learner import CollectiveLearner
from elasticctr.collective.work import EpochLedger
from elasticctr.data.chunks import Chunk
from elasticctr.errors import ElasticCTRError, FailedPrecondition, InternalError
from elasticctr.storage.atomic import read_json
from elasticctr.train.checkpoint import LEDGER, METRICS, PART, Checkpoint, rotate, write_checkpoint


def save(
    group: Group,
    learner: CollectiveLearner,
    directory: Path,
    trainer: dict[str, Any],
    ledger: dict[str, Any] | None,
    keep: int,
) -> Path:
    """Writes a checkpoint; `ledger` is None between epochs. Every rank calls it, and it fails on all or on none."""
    learner.agree()
    metrics = learner.merged_metrics()
    if not group.is_first:
        return _follow(group, learner)

    def write_files(temporary: Path) -> None:
        group.broadcast(("write", str(temporary)))
        _write_part(group, learner, temporary)
        learner.save_dense(temporary)
        (temporary / METRICS).write_bytes(metrics.state())
        if ledger is not None:
            (temporary / LEDGER).write_text(json.dumps(ledger), encoding="utf-8")

    try:
        path = write_checkpoint(directory, trainer["step"], trainer, write_files)
        rotate(directory, keep)
    except ElasticCTRError as e:
        group.broadcast(("failed", str(e)))
        raise
    group.broadcast(("done", str(path)))
    return path


def read_ledger(checkpoint: Checkpoint, chunks: Sequence[Chunk]) -> EpochLedger:
    """How far the epoch was. Refuses a position that ranks cannot resume from."""
    if not (checkpoint.path / LEDGER).exists():
        raise FailedPrecondition(
            f"{checkpoint.path}: was written by one process in the middle of epoch {checkpoint.trainer['epoch']}, and "
            "several processes cannot resume from its position; finish the epoch with elasticctr train --resume, "
            "without --on"
        )
    if list(checkpoint.path.glob(PART.format(shard="*"))):
        raise FailedPrecondition(
            f"{checkpoint.path}: was written by pservers in the middle of an epoch, and each has its own position; "
            "finish the epoch with the strategy it was begun with"
        )
    return EpochLedger.restore(read_json(checkpoint.path / LEDGER), chunks)


def _follow(group: Group, learner: CollectiveLearner) -> Path:
    """What all ranks but the first do: follow rank 0."""
    while True:
        match tuple(group.broadcast(("failed", ""))):
            case ("write", path):
                try:
                    _write_part(group, learner, Path(path))
                except ElasticCTRError:
                    continue  # rank 0 knows too, removes the unfinished checkpoint and says so
            case ("done", path):
                return Path(path)
            case (_, reason):
                raise InternalError(reason)


def _write_part(group: Group, learner: CollectiveLearner, directory: Path) -> None:
    error = ""
    try:
        learner.save_part(directory)
    except (ElasticCTRError, OSError) as e:
        error = f"rank {group.rank}: {e}"
    failed = [text for text in group.gather(error) if text]
    if failed:
        raise InternalError("; ".join(failed))
