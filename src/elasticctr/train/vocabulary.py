"""The vocabulary of a run, before its first step: read from the file the job names, or counted in the training data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elasticctr.data.batch import Batch
from elasticctr.data.vocabulary import Vocabulary, count_vocabulary
from elasticctr.obs.progress import Progress
from elasticctr.train.job import Job
from elasticctr.train.reading import open_dataset

FILE = "vocabulary.bin"
_BATCH = 16384


def find_vocabulary(job: Job, *, resume: bool) -> Vocabulary | None:
    """None for a job without one. What was counted is kept in the run directory, so that a resumed run has the same."""
    settings = job.sparse.vocabulary
    if settings is None:
        return None
    if settings.path is not None:
        return Vocabulary.load(Path(settings.path))
    assert settings.min_count is not None
    path = Path(job.run_dir) / FILE
    if resume:
        return Vocabulary.load(path)
    with Progress("vocabulary") as progress:
        made = count_vocabulary(job.samples, _read(job), settings.min_count, progress.advance)
    made.save(path, overwrite=True)
    return made


def _read(job: Job) -> Iterator[Batch]:
    with open_dataset(job.data.train, job.samples).iterate(_BATCH) as batches:
        yield from batches
