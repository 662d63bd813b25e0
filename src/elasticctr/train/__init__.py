"""The training loop, checkpoints, metrics and evaluation.

from elasticctr.train import load_job, train

result = train(load_job("job.yaml"))
print(result.metrics["valid"]["auc"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticctr.errors import ConfigError
from elasticctr.models.cpu import prepare_torch
from elasticctr.train.job import Job, load_job

if TYPE_CHECKING:
    from elasticctr.models.model import Model
    from elasticctr.train.trainer import Result, StepHook

__all__ = ["Job", "load_job", "train"]

prepare_torch()  # some of it must be set before torch is imported, which the other modules here do


def train(
    job: Job,
    *,
    model_class: type[Model] | None = None,
    resume: bool = False,
    quiet: bool = False,
    on_step: StepHook | None = None,
) -> Result:
    """Runs a job to its end and writes its report. `model_class` takes the place of `job.model.name`.

    `on_step` sees the learner after every step. Jobs with a `publish` section are run by `elasticctr.publish.stream`.
    """
    if job.publish is not None and on_step is None:
        raise ConfigError("a job with a publish section is run by `elasticctr train` or elasticctr.publish.stream")
    from elasticctr.train.report.report import write_report
    from elasticctr.train.trainer import Trainer

    result = Trainer(job, model_class=model_class, quiet=quiet, on_step=on_step).run(resume=resume)
    if result.is_finished:
        write_report(result.run_dir)
    return result
