"""Publishes a checkpoint of a run directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticctr.errors import ConfigError, NotFound
from elasticctr.publish.picking import pick_samples, read_samples
from elasticctr.publish.publisher import MAX_CHAIN, KindChoice, PublishedRun, Publisher
from elasticctr.publish.quality import measure_loss
from elasticctr.train.checkpoint import Checkpoint, best_checkpoint, list_checkpoints, open_checkpoint
from elasticctr.train.learner import Learner
from elasticctr.train.metrics.label_metrics import values_of
from elasticctr.train.run_directory import RunDirectory
from elasticctr.versions.manifest import Encoding, Manifest

QUALITY_SAMPLES = 50_000
_QUALITY_BATCH = 4096


def publish_run(
    run: str | Path,
    to: str,
    *,
    model: str | None = None,
    checkpoint: str = "best",
    kind: KindChoice = "auto",
    encoding: Encoding = "fp32",
    max_chain: int = MAX_CHAIN,
    keep: int | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> tuple[Manifest, dict[str, Any]]:
    """The new version and its metrics. `checkpoint` is best, last or a step; `model` defaults to the run's name."""
    if keep is not None and keep < 1:
        raise ConfigError(f"--keep {keep}: must be at least 1, the published version itself")
    directory = RunDirectory(run)
    job = directory.load_job()
    chosen = choose_checkpoint(directory.path, checkpoint)
    learner = Learner(job)
    learner.load(chosen)
    publisher = Publisher(
        to, model or directory.path.resolve().name, encoding=encoding, max_chain=max_chain, keep=keep, advance=advance
    )
    batch = pick_samples(job, learner)
    metrics: dict[str, Any] = {"valid": _plain(chosen.trainer.get("valid")), "splits": _read_metrics(directory)}
    if encoding != "fp32":
        real = list(read_samples(job, QUALITY_SAMPLES, _QUALITY_BATCH, valid_only=True))
        loss = measure_loss(publisher, learner, real or [batch], has_labels=bool(real))
        metrics["encoding"] = {"encoding": encoding, **loss}
    manifest = publisher.publish(
        learner,
        PublishedRun(
            job.samples,
            batch,
            metrics,
            {
                "directory": str(directory.path),
                "checkpoint": chosen.path.name,
                "step": chosen.step,
                "samples": chosen.trainer.get("samples"),
            },
            learner.sparse.marks,
        ),
        kind,
    )
    return manifest, metrics


def choose_checkpoint(run: Path, which: str) -> Checkpoint:
    if which == "best":
        return best_checkpoint(run) or open_checkpoint(run)
    if which == "last":
        return open_checkpoint(run)
    steps = [int(path.name.removeprefix("step-")) for path in list_checkpoints(run / "checkpoints")]
    if not which.isdigit() or int(which) not in steps:
        known = ", ".join(str(step) for step in steps) or "none"
        raise NotFound(f"{run}: no checkpoint {which!r}; give best, last or a step (there are: {known})")
    return open_checkpoint(run / "checkpoints" / f"step-{int(which):012d}")


def _read_metrics(directory: RunDirectory) -> dict[str, Any]:
    """The metrics of each split, without curves."""
    try:
        found = json.loads(directory.metrics.read_text(encoding="utf-8"))
        return {split: _plain(metrics) for split, metrics in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _plain(metrics: Any) -> Any:
    if not isinstance(metrics, dict):
        return metrics
    return values_of(metrics)
