"""The training loop, checkpoints, metrics and evaluation. elasticctr.run is the way in from Python."""

from __future__ import annotations

from elasticctr.models.cpu import prepare_torch
from elasticctr.train.job import Job, load_job

__all__ = ["Job", "load_job"]

prepare_torch()  # some of it must be set before torch is imported, which the other modules here do
