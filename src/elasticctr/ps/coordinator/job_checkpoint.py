"""Checkpoints of a run with pservers: the parts they save, the ledger, and which one to go back to.

A checkpoint in parts lies beside those of one process and is written, verified and rotated by the same code
(train/checkpoint.py, docs/formats/checkpoint.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticctr.errors import Corruption, ElasticCTRError, FailedPrecondition, InternalError, NotFound
from elasticctr.ps.coordinator.ledger import Ledger
from elasticctr.storage.atomic import read_json
from elasticctr.train.checkpoint import (
    LEDGER,
    METRICS,
    PART,
    Checkpoint,
    list_checkpoints,
    open_checkpoint,
    rotate,
    write_checkpoint,
)
from elasticctr.train.chunk_plan import Plan, digest_of


@dataclass(frozen=True, slots=True)
class Moment:
    """The coordinator's share of a checkpoint. Taken before the pservers save, so they have all that it calls done."""

    step: int
    trainer: dict[str, Any]
    ledger: dict[str, Any] | None  # None: between two epochs
    metrics: bytes


def describe_ledger(ledger: Ledger) -> dict[str, Any]:
    return {"format": 1, "plan": digest_of(ledger.chunks), **ledger.state()}


def write_job_checkpoint(
    directory: Path,
    moment: Moment,
    save_parts: Callable[[str], None],
    is_current: Callable[[], bool],
    keep: int,
    spared: Collection[Path] = (),
) -> Path:
    """`save_parts` has every pserver save into a directory. Nothing is left of a checkpoint that fails. Of the others
    `keep` are kept, and those that are `spared`."""

    def write_files(target: Path) -> None:
        save_parts(str(target.absolute()))
        if not is_current():
            raise FailedPrecondition("a pserver was lost while the checkpoint was written; it is not kept")
        if not list(target.glob("pserver.*.json")):
            raise InternalError(
                f"{target}: the pservers wrote their parts elsewhere; give the run a directory that every role shares"
            )
        (target / METRICS).write_bytes(moment.metrics)
        if moment.ledger is not None:
            (target / LEDGER).write_text(json.dumps(moment.ledger), encoding="utf-8")

    path = write_checkpoint(directory, moment.step, moment.trainer, write_files)
    rotate(directory, keep, spared)
    return path


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A checkpoint to resume from."""

    checkpoint: Checkpoint
    ledger: Ledger | None
    metrics: bytes | None

    @property
    def path(self) -> Path:
        return self.checkpoint.path


def find_good(
    directory: Path, plan: Plan, batch_size: int, refused: Collection[Path], warn: Callable[[str], None]
) -> ResumePoint | None:
    """The newest whole checkpoint, or None. `warn` is called for damaged ones."""
    for path in reversed(list_checkpoints(directory)):
        if path in refused:
            continue
        try:
            return _open(path, plan, batch_size)
        except (Corruption, NotFound) as e:
            warn(f"{path.name} cannot be used; trying the one before: {e}")
    return None


def _open(path: Path, plan: Plan, batch_size: int) -> ResumePoint:
    checkpoint = open_checkpoint(path)
    metrics = path / METRICS
    saved = metrics.read_bytes() if metrics.exists() else None
    if checkpoint.trainer.get("data") is None:
        return ResumePoint(checkpoint, None, saved)
    if not (path / LEDGER).exists():
        raise FailedPrecondition(
            f"{path}: was written by one process in the middle of epoch {checkpoint.trainer.get('epoch')}, and "
            "several processes cannot resume from its position; finish the epoch with `elasticctr train … --resume`, "
            "without --on"
        )
    state = read_json(path / LEDGER)
    chunks = plan.epoch(int(state.get("epoch", -1)))
    if state.get("plan") != digest_of(chunks):
        raise Corruption(f"{path}: its ledger is of another plan than the run's")
    return ResumePoint(checkpoint, Ledger.restore(chunks, state, read_cursors(path), batch_size), saved)


def read_cursors(path: Path) -> dict[int, int]:
    """How many batches of each chunk every pserver has, by chunk id: the smallest of their cursors."""
    smallest: dict[int, int] = {}
    parts = sorted(path.glob(PART.format(shard="*")))
    for index, part in enumerate(parts):
        cursors = _cursors_of(part)
        if index == 0:
            smallest = cursors
        else:
            smallest = {chunk: min(have, cursors[chunk]) for chunk, have in smallest.items() if chunk in cursors}
    return smallest


def _cursors_of(part: Path) -> dict[int, int]:
    try:
        return {int(chunk): int(cursor) for chunk, cursor in read_json(part)["cursors"].items()}
    except (ElasticCTRError, KeyError, TypeError, ValueError, AttributeError) as e:
        raise Corruption(f"{part}: holds no cursors: {type(e).__name__}: {e}") from None
