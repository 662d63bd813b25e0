"""Loads a trained model from its run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elasticctr.config import apply_overrides, parse_settings
from elasticctr.train.checkpoint import MANIFEST, best_checkpoint, open_checkpoint
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.run_directory import RunDirectory


def load_learner(run: Path, overrides: Sequence[str] = ()) -> tuple[Learner, Job]:
    """The learner of a run (its best checkpoint, or else its newest) or of one checkpoint in it, and its job."""
    is_checkpoint = (run / MANIFEST).exists()
    directory = RunDirectory.of(run)
    job = directory.load_job()
    if overrides:
        changed = apply_overrides(job.model_dump(mode="json", by_alias=True), overrides, {})
        job = parse_settings(Job, changed, str(directory.job))
    checkpoint = open_checkpoint(run) if is_checkpoint else best_checkpoint(run) or open_checkpoint(run)
    learner = Learner(job)
    learner.load(checkpoint)
    return learner, job
