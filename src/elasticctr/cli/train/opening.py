"""How commands open a trained run and the data to run it on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from elasticctr.data.settings import DataSettings
from elasticctr.errors import ConfigError

if TYPE_CHECKING:
    from elasticctr.data.dataset import Dataset
    from elasticctr.train.job import Job
    from elasticctr.train.learner import Learner


def open_run(
    run: Path, data: str | None, overrides: list[str] | None, *, require_label: bool = True
) -> tuple[Learner, Dataset, Job]:
    from elasticctr.train.loading import load_learner
    from elasticctr.train.reading import open_dataset

    learner, job = load_learner(run, overrides or [])
    settings = DataSettings(path=data) if data is not None else job.data.test or job.data.valid
    if settings is None:
        raise ConfigError(f"{run}: its job names no test or validation data; name the data with --data")
    return learner, open_dataset(settings, job.samples, require_label=require_label), job
