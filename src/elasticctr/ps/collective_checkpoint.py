"""Checkpoints of a collective run, in parts: each rank writes its share of every table, rank 0 everything else.

The directory is that of docs/formats/checkpoint.md, so one process, or any other number of ranks or pservers, goes on
from it. The run directory must be the same for all ranks: a shared file system where they are on several machines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from elasticctr.errors import ElasticCTRError, InternalError
from elasticctr.ps.collective_group import Group
from elasticctr.ps.collective_learner import CollectiveLearner
from elasticctr.train.checkpoint import rotate, write_checkpoint

_News = tuple[Literal["write", "done", "failed"], str]


def save(
    group: Group, learner: CollectiveLearner, directory: Path, step: int, trainer: dict[str, Any], keep: int
) -> Path:
    """Writes the checkpoint of `step`. Every rank calls it, and it fails on all of them or on none."""
    learner.agree()
    metrics = learner.merged_metrics()
    if not group.is_first:
        return _follow(group, learner)

    def write_files(temporary: Path) -> None:
        group.tell(("write", str(temporary)))
        _write_part(group, learner, temporary)
        learner.save_dense(temporary)
        (temporary / "metrics.bin").write_bytes(metrics.state())

    try:
        path = write_checkpoint(directory, step, trainer, write_files)
        rotate(directory, keep)
    except ElasticCTRError as e:
        group.tell(("failed", str(e)))
        raise
    group.tell(("done", str(path)))
    return path


def _follow(group: Group, learner: CollectiveLearner) -> Path:
    """What ranks but the first do: as rank 0 says."""
    while True:
        news: _News = group.tell(("failed", ""))
        match news:
            case ("write", path):
                try:
                    _write_part(group, learner, Path(path))
                except ElasticCTRError:
                    continue  # rank 0 knows, takes the half-written one away and says so
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
