"""The collective strategy: no pservers and no coordinator. Ranks that torchrun starts train in step.

Each step every rank takes a batch of its own; together they are the batch one process would have taken. The tables are
spread over the ranks (collective_tables.py), the dense parameters are on each. When a rank dies the others end too;
torchrun starts the group again, with as many ranks as there are then, and it goes on from the newest checkpoint.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elasticctr.collective import checkpoint as collective_checkpoint
from elasticctr.collective.evaluation import evaluate, gather_ledgers
from elasticctr.collective.group import Group
from elasticctr.collective.learner import CollectiveLearner, StepNews, merge_metrics
from elasticctr.collective.record import Record, RunPlace
from elasticctr.collective.work import ChunkBatch, EpochLedger, deal, read_pieces
from elasticctr.data.chunks import Chunk
from elasticctr.data.pipeline import BadLineLimit, Stats
from elasticctr.data.settings import DataSettings
from elasticctr.errors import ConfigError, Corruption, FailedPrecondition, NotFound
from elasticctr.models.model import Model
from elasticctr.net.access import read_token
from elasticctr.obs import console
from elasticctr.train.checkpoint import (
    LEDGER,
    Checkpoint,
    best_checkpoint,
    list_checkpoints,
    note_best,
    open_checkpoint,
)
from elasticctr.train.chunk_plan import Plan
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.interrupt import Interrupt
from elasticctr.train.job import Job
from elasticctr.train.metrics.label_metrics import describe, values_of
from elasticctr.train.report.report import write_report
from elasticctr.train.run_directory import RunDirectory
from elasticctr.train.schedule import Schedule
from elasticctr.train.trainer import Result

# What a rank tells the others with each step.
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

    With `resume` the run goes on from its newest checkpoint, or begins if it has none. A group that was started again
    by torchrun resumes in any case. A rank that dies is noticed at once; `timeout_s` is for one that hangs, and must be
    longer than what a rank does alone, such as writing its part of a checkpoint.
    """
    settings = job.cluster or ClusterSettings(strategy="collective")
    token_file = os.environ.get("ELASTICCTR_TOKEN_FILE") or settings.token_file
    token = read_token(Path(token_file)) if token_file else ""
    with Group(timeout_s, token=token, insecure=settings.insecure) as group:
        runner = _Run(job, group, quiet=quiet, model_class=model_class)
        return runner.run(resume=resume or group.is_restarted)


class _Run:
    def __init__(self, job: Job, group: Group, *, quiet: bool, model_class: type[Model] | None) -> None:
        if job.publish is not None:
            raise ConfigError(
                "publish: versions are not published while a collective run trains; publish from its checkpoints "
                "with elasticctr publish"
            )
        self._job, self._group, self._quiet = job, group, quiet
        self._cluster = job.cluster or ClusterSettings(strategy="collective")
        self._learner = CollectiveLearner(job, group, model_class)
        self._schedule = Schedule(job.train)
        self._run = RunDirectory(job.run_dir)
        self._at = RunPlace()
        self._ledger = EpochLedger()
        self._trained = 0  # samples since this group started
        self._evaluations: dict[str, Any] = {}
        self._newest: tuple[int, Path] | None = None
        self._saved_at = time.monotonic()
        self._plan = Plan(self._run.path / "ledger", job)
        self._chunks: dict[int, list[Chunk]] = {}  # by epoch

    def run(self, *, resume: bool) -> Result:
        began = time.monotonic()
        found = self._group.first(lambda: [str(path) for path in self._begin(resume)])
        is_resumed = self._go_on([Path(path) for path in found])
        with (
            Record(
                self._run.events,
                is_silent=not self._group.is_first,
                quiet=self._quiet,
                resume_step=self._at.step if is_resumed else None,
                log_every=self._job.train.log_every,
            ) as self._record,
            Interrupt() as self._interrupt,
        ):
            self._record.write("start", self._at, {"ranks": self._group.size})
            while self._at.epoch < self._job.train.epochs and not self._is_over:
                if not self._run_epoch():
                    return self._end(began, is_finished=False)
            if self._job.data.valid is not None and "valid" not in self._evaluations:
                self._evaluate_valid()
            self._evaluate_test()
            return self._end(began, is_finished=True)

    def _begin(self, resume: bool) -> list[Path]:
        """Rank 0: the checkpoints to go on from, the newest first."""
        found = list_checkpoints(self._run.checkpoints)
        self._run.begin(self._job, resume=resume)
        plans = self._run.path / "ledger"
        if not found:
            shutil.rmtree(plans, ignore_errors=True)  # of a start that did not get far; the data may be another's now
        plans.mkdir(exist_ok=True)
        return found[::-1] if resume else []

    def _go_on(self, checkpoints: Sequence[Path]) -> bool:
        """Takes up the newest checkpoint that is whole on every rank. False: there was none to take."""
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
                text = f"{path.name} cannot be used, the one before is tried: {damaged}"
                console.stderr().print(text, soft_wrap=True)
        if checkpoints:
            raise Corruption(f"{self._run.checkpoints}: no checkpoint can be used; start anew in another directory")
        return False

    def _run_epoch(self) -> bool:
        """False: interrupted, with a checkpoint written."""
        if not self._ledger.notes:
            self._learner.local.clear_metrics()
            self._at.epoch_samples = self._at.epoch_steps = 0
        for work in deal(self._epoch_chunks(), self._ledger, self._group.rank, self._group.size):
            if not self._run_round(work):
                return False
            if self._is_over:
                break
        self._end_epoch()
        return True

    def _run_round(self, work: Sequence[tuple[Chunk, int]]) -> bool:
        """All ranks' chunks of one date."""
        settings = self._job.train
        pieces = read_pieces(
            work, self._job.samples, self._job.data.train, settings.batch_size, self._learner.plan.look_up
        )
        try:
            while True:
                piece = next(pieces, None)
                scale = self._schedule.lr_scale(self._at.step)
                news = self._learner.step(piece.item if piece else None, self._note(piece), scale)
                notes = int(np.bitwise_or.reduce(news.notes))
                if (news.notes & _OUT_OF_WORK).all():
                    return True
                if piece is not None:
                    self._ledger.take(piece)
                self._count(news, scale)
                if news.batches and settings.eval_every and self._at.step % settings.eval_every == 0:
                    self._evaluate_valid()
                every = settings.checkpoint_every
                is_due = news.batches > 0 and every is not None and self._at.step % every == 0
                if is_due or notes & (_CHECKPOINT | _STOP):
                    self._checkpoint()
                if notes & _STOP:
                    return False
                if self._is_over:
                    return True
        finally:
            pieces.close()

    def _note(self, piece: ChunkBatch | None) -> int:
        note = _OUT_OF_WORK if piece is None else 0
        every_s = self._cluster.checkpoint_s
        if self._group.is_first and every_s is not None and time.monotonic() - self._saved_at >= every_s:
            note |= _CHECKPOINT
        return note | (_STOP if self._interrupt.is_set else 0)

    def _count(self, news: StepNews, scale: float) -> None:
        at = self._at
        if news.refused:
            at.refused += news.refused
            self._record.write("not_finite", at, {"refused": news.refused, "refused_so_far": at.refused})
        if news.batches == 0:
            return
        at.step += 1
        at.epoch_steps += 1
        at.samples += news.samples + news.refused
        at.epoch_samples += news.samples + news.refused
        self._trained += news.samples
        self._record.step(at, news.samples, news.loss_sum, self._learner.local.metrics, scale)

    def _end_epoch(self) -> None:
        self._note_data("train", self._epoch_chunks(), self._join_ledgers().stats)
        if not self._is_over:
            self._at.epoch += 1
            self._ledger = EpochLedger(self._at.epoch)
        if not self._job.train.eval_every:
            self._evaluate_valid()
        self._checkpoint()

    def _join_ledgers(self) -> EpochLedger:
        joined = self._ledger.join(gather_ledgers(self._group, self._ledger))
        BadLineLimit(self._job.samples, self._job.data.train, joined.stats).check()
        return joined

    @property
    def _is_over(self) -> bool:
        steps = self._job.train.steps
        return (steps is not None and self._at.step >= steps) or self._schedule.should_stop

    def _epoch_chunks(self) -> list[Chunk]:
        """Rank 0 looks for the files and keeps the plan, so that all ranks have the same chunks in the same order."""
        if self._at.epoch not in self._chunks:
            self._chunks = {self._at.epoch: self._share(lambda: self._plan.epoch(self._at.epoch))}
        return self._chunks[self._at.epoch]

    def _share(self, find: Callable[[], Sequence[Chunk]]) -> list[Chunk]:
        """The chunks that rank 0 finds, on every rank."""
        return [Chunk.from_dict(chunk) for chunk in self._group.first(lambda: [c.as_dict() for c in find()])]

    def _note_data(self, split: str, chunks: Sequence[Chunk], stats: Stats) -> None:
        files = len({chunk.path for chunk in chunks})
        values = {"split": split, "files": files, "rows": stats.samples, "bad_lines": stats.bad}
        self._record.write("data", self._at, values)

    def _evaluate_valid(self) -> None:
        settings = self._job.data.valid
        if settings is None:
            return
        best = self._evaluations.get("valid")
        metrics = self._evaluate("valid", settings)
        is_best = self._schedule.see_evaluation(metrics)
        self._watch_overfitting(metrics)
        if is_best:
            path = self._checkpoint()
            self._group.first(lambda: note_best(self._run.checkpoints, path))
        elif best is not None:
            self._evaluations["valid"] = best  # reported with the state that is kept

    def _watch_overfitting(self, metrics: dict[str, Any]) -> None:
        epoch = self._at.epoch + bool(self._join_ledgers().notes)
        train_logloss = merge_metrics(self._group, self._learner.local.metrics).compute().logloss
        if (found := self._schedule.overfitting.see(epoch, train_logloss, metrics)) is not None:
            self._record.write("warning", self._at, found.as_dict())
            self._record.note(f"warning: {found.text}")

    def _evaluate_test(self) -> None:
        settings = self._job.data.test
        if settings is None:
            return
        best = best_checkpoint(self._run.path)
        if best is not None and best.step != self._at.step:
            self._learner.load(best)
        self._evaluate("test", settings)

    def _evaluate(self, split: str, settings: DataSettings) -> dict[str, Any]:
        chunks = self._share(lambda: self._plan.evaluation(split, 0)[0])
        result, stats = evaluate(self._job, self._group, self._learner, chunks, settings)
        self._evaluations[split] = result
        self._note_data(split, chunks, stats)
        metrics = values_of(result)
        self._record.write("eval", self._at, {"split": split, **metrics})
        self._record.note(f"{split}: {describe(metrics)}  after {self._at.samples:,} samples")
        return metrics

    def _checkpoint(self) -> Path:
        at = self._at
        if self._newest is not None and self._newest[0] == at.step:
            return self._newest[1]
        joined = self._join_ledgers()
        trainer = {
            "epoch": at.epoch,
            "step": at.step,
            "samples": at.samples,
            "epoch_samples": at.epoch_samples,
            "epoch_steps": at.epoch_steps,
            "data": {"ledger": LEDGER} if joined.notes else None,
            "schedule": self._schedule.state(),
            "valid": self._evaluations.get("valid"),
            "identity": self._learner.local.identity,
            "refused": at.refused,
        }
        ledger = joined.state(self._epoch_chunks()) if joined.notes else None
        path = collective_checkpoint.save(
            self._group, self._learner, self._run.checkpoints, trainer, ledger, self._job.train.keep_checkpoints
        )
        self._newest, self._saved_at = (at.step, path), time.monotonic()
        self._record.write("checkpoint", at, {"path": f"checkpoints/{path.name}"})
        return path

    def _restore(self, checkpoint: Checkpoint) -> None:
        self._learner.agree()
        state = checkpoint.trainer
        self._schedule.restore(state["schedule"])
        if state["valid"] is not None:
            self._evaluations["valid"] = state["valid"]
        self._at = RunPlace(
            state["epoch"],
            state["step"],
            state["samples"],
            state["epoch_samples"],
            state.get("epoch_steps", 0),
            state.get("refused", 0),
        )
        self._ledger = EpochLedger(self._at.epoch)
        if state["data"] is not None:
            self._ledger = collective_checkpoint.read_ledger(checkpoint, self._epoch_chunks())
        self._newest = (self._at.step, checkpoint.path)
        self._learner.seed(self._job.train.seed + self._at.step)

    def _end(self, began: float, *, is_finished: bool) -> Result:
        metrics = {"train": self._learner.merged_metrics().report(), **self._evaluations}
        seconds = time.monotonic() - began
        reason = "interrupted" if not is_finished else "early stopping" if self._schedule.should_stop else "finished"
        values = {"reason": reason, "seconds": seconds, "samples_per_s": self._trained / seconds}
        self._record.write("end", self._at, values)
        if self._at.samples == 0:
            raise FailedPrecondition("no sample was trained on; check data.train")
        self._group.first(lambda: self._write_report(metrics, is_finished))
        return Result(
            self._run.path,
            self._at.step,
            self._at.samples,
            self._trained,
            seconds,
            metrics,
            is_finished,
            self._schedule.should_stop,
        )

    def _write_report(self, metrics: dict[str, Any], is_finished: bool) -> None:
        self._run.write_metrics(metrics)
        if is_finished:
            write_report(self._run.path)
