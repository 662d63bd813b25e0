"""The training loop, checkpoints, metrics and evaluation.

from elasticctr.train import load_job, train

result = train(load_job("job.yaml"))
print(result.metrics["valid"]["auc"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticctr.models.cpu import prepare_torch
from elasticctr.train.job import Job, load_job

if TYPE_CHECKING:
    from elasticctr.models.model import Model
    from elasticctr.train.trainer import Result

__all__ = ["Job", "load_job", "train"]

prepare_torch()  # some of it must be set before torch is imported, which the other modules here do


def train(job: Job, *, model_class: type[Model] | None = None, resume: bool = False, quiet: bool = False) -> Result:
    """Runs a job to its end and writes its report. `model_class` takes the place of `job.model.name`."""
    from elasticctr.train.report import write_report
    from elasticctr.train.trainer import Trainer

    result = Trainer(job, model_class=model_class, quiet=quiet).run(resume=resume)
    if result.is_finished:
        write_report(result.run_dir)
    return result
