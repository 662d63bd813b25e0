"""Publishing while training: a version every so many steps, deltas mostly, without writing a checkpoint.

Training waits while a version is written, well under a second for a delta. A repository that does not answer does not
end the training: the version is skipped, said so, and the next one carries its rows too.
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
    """What a trainer calls after every step."""

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
            # The first must work: a wrong address should not be found out after a night of training.
            if self._published < 0:
                raise
            self._say(f"not published at step {step}: {e}", e)
            return
        self._published = step
        self._say(f"published {manifest.model} version {manifest.version} ({manifest.kind}): {manifest.rows:,} rows")

    def publish(self, learner: Learner, step: int) -> Manifest:
        """Publishes the learner as it is now."""
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
