"""Runs a job from Python, in this process:

from elasticctr.run import load_job, train

result = train(load_job("job.yaml"))
print(result.metrics["valid"]["auc"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticctr.train.job import Job, load_job

if TYPE_CHECKING:
    from elasticctr.models.model import Model
    from elasticctr.train.result import Result

__all__ = ["Job", "load_job", "train"]


def train(job: Job, *, model_class: type[Model] | None = None, resume: bool = False, quiet: bool = False) -> Result:
    """Trains a job to its end, publishes as its `publish` section says, and writes its report.

    `model_class` takes the place of `job.model.name`.
    """
    from elasticctr.publish.stream import StreamPublisher
    from elasticctr.train.report.report import write_report
    from elasticctr.train.trainer import Trainer

    publisher = None if job.publish is None else StreamPublisher(job, job.publish, quiet=quiet)
    result = Trainer(job, model_class=model_class, quiet=quiet, on_step=publisher).run(resume=resume)
    if result.is_finished:
        write_report(result.run_dir)
    return result
