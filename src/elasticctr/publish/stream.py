"""Publishing while training: a version every few steps, usually a delta, without writing a checkpoint.

Training waits while a version is written, for a delta well under a second. If the repository does not answer,
training continues: the version is skipped with a warning, and the next one contains its rows too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from elasticctr.data.batch import Batch
from elasticctr.errors import ElasticCTRError, FailedPrecondition, InternalError, Unavailable
from elasticctr.obs import console
from elasticctr.train.job import Job, PublishSettings

if TYPE_CHECKING:
    from elasticctr.train.learner import Learner
    from elasticctr.versions.manifest import Manifest


class StreamPublisher:
    """Called by a trainer after every step."""

    def __init__(self, job: Job, settings: PublishSettings, *, quiet: bool = False) -> None:
        from elasticctr.publish.publisher import Publisher

        self._job = job
        self._every = settings.every_steps
        self._quiet = quiet
        self._published = -1
        self._batch: Batch | None = None
        self._publisher = Publisher(
            settings.to,
            settings.model or Path(job.run_dir).resolve().name,
            encoding=settings.encoding,
            max_chain=settings.max_chain,
            keep=settings.keep,
            reuse_graph=True,
        )

    def __call__(self, learner: Learner, step: int, is_epoch_end: bool) -> None:
        is_due = is_epoch_end or (self._every is not None and step % self._every == 0)
        if not is_due or step == self._published:
            return
        try:
            manifest = self.publish(learner, step)
        except (Unavailable, FailedPrecondition, InternalError) as e:
            # The first one must succeed, so that a wrong address is found at once and not after a night of training.
            if self._published < 0:
                raise
            self._say(f"not published at step {step}: {e}", e)
            return
        self._published = step
        self._say(f"published {manifest.model} version {manifest.version} ({manifest.kind}): {manifest.rows:,} rows")

    def publish(self, learner: Learner, step: int) -> Manifest:
        """Publishes the learner's current state."""
        from elasticctr.publish.picking import pick_samples
        from elasticctr.publish.publisher import PublishedRun

        if self._batch is None:
            self._batch = pick_samples(self._job, learner)
        snapshot = PublishedRun(
            self._job.samples,
            self._batch,
            {"train": learner.metrics.as_dict()},
            {"directory": self._job.run_dir, "step": step},
            learner.sparse.mark(),
        )
        return self._publisher.publish(learner, snapshot)

    def _say(self, text: str, error: ElasticCTRError | None = None) -> None:
        if not self._quiet or error is not None:
            console.stderr().print(text, markup=False, soft_wrap=True)
