"""The collective strategy: no pservers and no coordinator. Ranks that torchrun starts train in step.

Each step every rank takes a batch of its own; together they are the batch one process would have taken. The tables are
spread over the ranks (tables.py), the dense parameters are on each. When a rank dies the others end too; torchrun
starts the group again, with as many ranks as there are then, and it resumes from the newest checkpoint.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from elasticctr.collective import checkpoint as collective_checkpoint
from elasticctr.collective.evaluation import evaluate, gather_ledgers
from elasticctr.collective.group import Group
from elasticctr.collective.learner import CollectiveLearner, StepNews, merge_metrics
from elasticctr.collective.work import ChunkBatch, EpochLedger, deal, read_chunks
from elasticctr.data.chunks import Chunk
from elasticctr.data.pipeline import BadLineLimit, Stats
from elasticctr.errors import ConfigError, Corruption, NotFound
from elasticctr.models.model import Model
from elasticctr.net.access import read_token
from elasticctr.obs import console
from elasticctr.train.checkpoint import LEDGER, Checkpoint, list_checkpoints, note_best, open_checkpoint
from elasticctr.train.chunk_plan import Plan
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.course import Course
from elasticctr.train.interrupt import Interrupt
from elasticctr.train.job import Job
from elasticctr.train.loop import Executor, RunLoop, find_better
from elasticctr.train.overfitting import Overfitting
from elasticctr.train.record import Record
from elasticctr.train.report.report import write_report
from elasticctr.train.result import Result
from elasticctr.train.run_directory import RunDirectory

# What each rank sends the others with a step.
_OUT_OF_WORK, _STOP, _CHECKPOINT = 1, 2, 4


def run(
    job: Job,
    *,
    resume: bool = False,
    quiet: bool = False,
    model_class: type[Model] | None = None,
    timeout_s: float = 600.0,
) -> Result:
    """Trains as one rank of the group that the environment names. Every rank returns the same figures.

    With `resume` the run continues from its newest checkpoint, or begins if it has none. A group that torchrun started
    again resumes in any case. A rank that dies is noticed at once; `timeout_s` is for one that hangs, and must be
    longer than what a rank does alone, such as writing its part of a checkpoint.
    """
    settings = job.cluster or ClusterSettings(strategy="collective")
    token_file = os.environ.get("ELASTICCTR_TOKEN_FILE") or settings.token_file
    token = read_token(Path(token_file)) if token_file else ""
    with Group(timeout_s, token=token, insecure=settings.insecure) as group:
        rank = _Rank(job, group, quiet=quiet, model_class=model_class)
        return rank.run(resume=resume or group.is_restarted)


class _Rank(Executor):
    def __init__(self, job: Job, group: Group, *, quiet: bool, model_class: type[Model] | None) -> None:
        if job.publish is not None:
            raise ConfigError(
                "publish: versions are not published while a collective run trains; publish from its checkpoints "
                "with elasticctr publish"
            )
        self._job, self._group, self._quiet = job, group, quiet
        self._cluster = job.cluster or ClusterSettings(strategy="collective")
        self._learner = CollectiveLearner(job, group, model_class)
        self._run = RunDirectory(job.run_dir)
        self._course = Course(job, in_chunks=True)
        self._refused = 0  # samples left out because their gradients were not finite
        self._ledger = EpochLedger()
        self._heard = 0  # what the ranks sent with the newest step
        self._newest: tuple[int, Path] | None = None
        self._saved_at = time.monotonic()
        self._plan = Plan(self._run.path / "ledger", job)
        self._chunks: dict[int, list[Chunk]] = {}  # by epoch

    def run(self, *, resume: bool) -> Result:
        began = time.monotonic()
        found = self._group.first(lambda: [str(path) for path in self._begin(resume)])
        is_resumed = self._resume([Path(path) for path in found])
        with (
            Record(
                self._run,
                self._course,
                log_every=self._job.train.log_every,
                quiet=self._quiet,
                is_resumed=is_resumed,
                is_silent=not self._group.is_first,
            ) as self._record,
            Interrupt() as self._interrupt,
        ):
            self._record.write("start", {"ranks": self._group.size})
            is_finished = RunLoop(self._job, self).run()
            metrics = {"train": self._learner.merged_metrics().report(), **self._course.evaluations}
            result = self._record.end(metrics, is_finished=is_finished, began=began)
            self._group.first(lambda: self._write_report(metrics, is_finished))
            return result

    @property
    def course(self) -> Course:
        return self._course

    @property
    def is_checkpoint_due(self) -> bool:
        saved = 0 if self._newest is None else self._newest[0]
        return bool(self._heard & _CHECKPOINT) or self._course.passed(self._job.train.checkpoint_every, saved)

    @property
    def is_interrupted(self) -> bool:
        return bool(self._heard & _STOP)

    def _begin(self, resume: bool) -> list[Path]:
        """Rank 0: the checkpoints to resume from, the newest first."""
        found = list_checkpoints(self._run.checkpoints)
        self._run.begin(self._job, resume=resume)
        plans = self._run.path / "ledger"
        if not found:
            shutil.rmtree(plans, ignore_errors=True)  # of a start that failed early; the data may have changed
        plans.mkdir(exist_ok=True)
        return found[::-1] if resume else []

    def _resume(self, checkpoints: Sequence[Path]) -> bool:
        """Restores the newest checkpoint that is whole on every rank. False: there is none."""
        for path in checkpoints:
            error, checkpoint = "", None
            try:
                checkpoint = open_checkpoint(path)
                self._learner.load(checkpoint)
            except (Corruption, NotFound) as e:
                error = str(e)
            damaged = next(filter(None, self._group.gather(error)), None)
            if damaged is None and checkpoint is not None:
                self._restore(checkpoint)
                return True
            if self._group.is_first:
                text = f"{path.name} cannot be used; trying the one before: {damaged}"
                console.stderr().print(text, soft_wrap=True)
        if checkpoints:
            raise Corruption(f"{self._run.checkpoints}: no checkpoint can be used; start a new run elsewhere")
        return False

    def train_epoch(self) -> Generator[None, None, None]:
        course = self._course
        if course.data is None:
            self._learner.local.clear_metrics()
            course.begin_epoch()
        for work in deal(self._epoch_chunks(), self._ledger, self._group.rank, self._group.size):
            yield from self._train_date(work)
            if course.is_over:
                break
        self._note_data("train", self._epoch_chunks(), self._join_ledgers().stats)
        if not course.is_over:
            course.end_epoch()
            self._ledger = EpochLedger(course.epoch)

    def _train_date(self, work: Sequence[tuple[Chunk, int]]) -> Generator[None, None, None]:
        """All ranks' chunks of one date."""
        train, course = self._job.train, self._course
        look_up = self._learner.plan.look_up
        with closing(read_chunks(work, self._job.samples, self._job.data.train, train.batch_size, look_up)) as batches:
            while not course.is_over:
                batch = next(batches, None)
                scale = course.schedule.lr_scale(course.step)
                news = self._learner.step(batch.item if batch else None, self._note(batch), scale)
                if (news.notes & _OUT_OF_WORK).all():
                    return
                self._heard = int(np.bitwise_or.reduce(news.notes))
                if batch is not None:
                    self._ledger.take(batch)
                course.data = {"ledger": LEDGER}
                self._count(news, scale)
                yield

    def _note(self, batch: ChunkBatch | None) -> int:
        note = _OUT_OF_WORK if batch is None else 0
        every_s = self._cluster.checkpoint_s
        if self._group.is_first and every_s is not None and time.monotonic() - self._saved_at >= every_s:
            note |= _CHECKPOINT
        return note | (_STOP if self._interrupt.is_set else 0)

    def _count(self, news: StepNews, scale: float) -> None:
        if news.refused:
            self._refused += news.refused
            self._record.write("not_finite", {"refused": news.refused, "refused_so_far": self._refused})
        if news.batches:
            self._course.count(news.samples + news.refused)
            self._record.step(news.samples, news.loss_sum, self._learner.local.metrics, scale)

    def _join_ledgers(self) -> EpochLedger:
        joined = self._ledger.join(gather_ledgers(self._group, self._ledger))
        BadLineLimit(self._job.samples, self._job.data.train, joined.stats).check()
        return joined

    def _epoch_chunks(self) -> list[Chunk]:
        """Rank 0 finds the files and keeps the plan, so that all ranks have the same chunks in the same order."""
        epoch = self._course.epoch
        if epoch not in self._chunks:
            self._chunks = {epoch: self._share(lambda: self._plan.epoch(epoch))}
        return self._chunks[epoch]

    def _share(self, find: Callable[[], Sequence[Chunk]]) -> list[Chunk]:
        """The chunks that rank 0 finds, on every rank."""
        return [Chunk.from_dict(chunk) for chunk in self._group.first(lambda: [c.as_dict() for c in find()])]

    def _note_data(self, split: str, chunks: Sequence[Chunk], stats: Stats) -> None:
        self._record.note_data(split, len({chunk.path for chunk in chunks}), stats)

    def evaluate(self, split: str) -> dict[str, Any]:
        settings = self._job.data.valid if split == "valid" else self._job.data.test
        assert settings is not None
        chunks = self._share(lambda: self._plan.evaluation(split, 0)[0])
        result, stats = evaluate(self._job, self._group, self._learner, chunks, settings)
        self._note_data(split, chunks, stats)
        self._record.note_evaluation(split, result)
        return result

    def train_logloss(self) -> float | None:
        return merge_metrics(self._group, self._learner.local.metrics).compute().logloss

    def warn(self, found: Overfitting) -> None:
        self._record.warn(found)

    def checkpoint(self) -> Path:
        course = self._course
        if self._newest is not None and self._newest[0] == course.step:
            return self._newest[1]
        joined = self._join_ledgers()
        trainer = {**course.state(self._learner.local.identity), "refused": self._refused}
        ledger = joined.state(self._epoch_chunks()) if course.data is not None else None
        path = collective_checkpoint.save(
            self._group, self._learner, self._run.checkpoints, trainer, ledger, self._job.train.keep_checkpoints
        )
        self._newest, self._saved_at = (course.step, path), time.monotonic()
        self._record.write("checkpoint", {"path": f"checkpoints/{path.name}"})
        return path

    def note_best(self, checkpoint: Path) -> None:
        self._group.first(lambda: note_best(self._run.checkpoints, checkpoint))

    def end_epoch(self) -> None:
        pass  # it ended with its data

    def publish(self) -> None:
        pass

    def finish(self) -> None:
        if self._job.data.test is not None and (best := find_better(self._run, self._course)) is not None:
            self._learner.load(best)

    def _restore(self, checkpoint: Checkpoint) -> None:
        self._learner.agree()
        state, course = checkpoint.trainer, self._course
        course.restore(state)
        self._refused = state.get("refused", 0)
        self._ledger = EpochLedger(course.epoch)
        if course.data is not None:
            self._ledger = collective_checkpoint.read_ledger(checkpoint, self._epoch_chunks())
        self._newest = (course.step, checkpoint.path)
        self._learner.seed(self._job.train.seed + course.step)

    def _write_report(self, metrics: dict[str, Any], is_finished: bool) -> None:
        self._run.write_metrics(metrics)
        if is_finished:
            write_report(self._run.path)
