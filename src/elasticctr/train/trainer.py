"""One training run in one process: the loop, and what happens at its joints (evaluation, checkpoint, end)."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticctr.data.dataset import Dataset
from elasticctr.errors import FailedPrecondition
from elasticctr.models.model import Model
from elasticctr.train.checkpoint import (
    Checkpoint,
    best_checkpoint,
    note_best,
    open_checkpoint,
    rotate,
    write_checkpoint,
)
from elasticctr.train.evaluation import evaluate
from elasticctr.train.events import EventWriter
from elasticctr.train.interrupt import Interrupt
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.metrics.label_metrics import describe, values_of
from elasticctr.train.progress import Figures, TrainingProgress
from elasticctr.train.reading import PreparedBatch, open_dataset, read_ahead
from elasticctr.train.run_directory import RunDirectory
from elasticctr.train.schedule import Schedule
from elasticctr.train.vocabulary import find_vocabulary


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended."""

    run_dir: Path
    step: int
    samples: int
    trained: int  # samples of this process alone, which may have resumed
    seconds: float  # with evaluation and checkpoints
    metrics: dict[str, Any]  # by split: train (progressive), valid, test
    is_finished: bool = True  # False: interrupted; resume to go on
    stopped_early: bool = False

    @property
    def samples_per_s(self) -> float:
        return self.trained / max(self.seconds, 1e-9)


@dataclass(slots=True)
class _Position:
    """Where a run is. All of it goes into the checkpoint."""

    epoch: int = 0
    step: int = 0
    samples: int = 0
    epoch_samples: int = 0
    data: dict[str, Any] | None = field(default=None)


# Called after every step and at each epoch's end with the learner, the step and whether an epoch ends.
StepHook = Callable[[Learner, int, bool], None]


class Trainer:
    def __init__(
        self,
        job: Job,
        *,
        model_class: type[Model] | None = None,
        quiet: bool = False,
        on_step: StepHook | None = None,
    ) -> None:
        self._job = job
        self._on_step = on_step
        self._quiet = quiet
        self._learner = Learner(job, model_class, device=job.train.device)
        self._schedule = Schedule(job.train)
        self._run = RunDirectory(job.run_dir)
        self._at = _Position()
        self._newest: tuple[int, Path] | None = None  # step and path of the last checkpoint
        self._trained = 0  # samples by this process, which may have resumed
        self._evaluations: dict[str, Any] = {}
        self._train_data = open_dataset(job.data.train, job.samples, seed=job.train.seed)
        self._valid_data = open_dataset(job.data.valid, job.samples) if job.data.valid else None
        self._test_data = open_dataset(job.data.test, job.samples) if job.data.test else None

    def run(self, *, resume: bool = False) -> Result:
        self._run.begin(self._job, resume=resume)
        if (vocabulary := find_vocabulary(self._job, resume=resume)) is not None:
            self._learner.plan.use(vocabulary)
        if resume:
            self._restore(open_checkpoint(self._run.path))
        began = time.monotonic()
        with (
            EventWriter(self._run.events, resume_step=self._at.step if resume else None) as self._events,
            TrainingProgress(quiet=self._quiet) as self._progress,
            Interrupt() as self._interrupt,
        ):
            self._write_event("start", {"commands": self._commands()})
            while self._at.epoch < self._job.train.epochs and not self._is_over:
                self._run_epoch()
                if self._interrupt.is_set:
                    return self._end(began, is_finished=False)
            if self._valid_data and "valid" not in self._evaluations:
                self._evaluate_valid()
            self._take_best()
            self._evaluate_test()
            return self._end(began, is_finished=True)

    def _run_epoch(self) -> None:
        settings, learner = self._job.train, self._learner
        if self._at.data is None:
            learner.clear_metrics()
            self._at.epoch_samples = 0
        window = _Window()
        items = self._read()
        try:
            for item in items:
                scale = self._schedule.lr_scale(self._at.step)
                loss = learner.step(item, scale)
                n = len(item.batch)
                self._at.step += 1
                self._at.samples += n
                self._trained += n
                self._at.epoch_samples += n
                self._at.data = item.position
                window.add(n, loss)
                if self._on_step is not None:
                    self._on_step(learner, self._at.step, False)
                if self._at.step % settings.log_every == 0 or self._progress.is_due:
                    window = self._log(window, scale)
                if settings.eval_every and self._at.step % settings.eval_every == 0:
                    self._evaluate_valid()
                if settings.checkpoint_every and self._at.step % settings.checkpoint_every == 0:
                    self._checkpoint()
                if self._interrupt.is_set:
                    self._checkpoint()
                    return
                if self._is_over:
                    break
        finally:
            items.close()
        if window.samples:
            self._log(window, self._schedule.lr_scale(self._at.step))
        self._end_epoch()
        if self._on_step is not None:
            self._on_step(learner, self._at.step, True)

    def _end_epoch(self) -> None:
        self._note_data(self._train_data, "train")
        is_whole = not self._is_over
        if is_whole:
            self._at.epoch += 1
            self._at.data = None
        if not self._job.train.eval_every:
            self._evaluate_valid()
        self._checkpoint()

    @property
    def _is_over(self) -> bool:
        steps = self._job.train.steps
        return (steps is not None and self._at.step >= steps) or self._schedule.should_stop

    def _read(self) -> Generator[PreparedBatch, None, None]:
        return read_ahead(
            self._train_data,
            self._learner.look_up,
            batch_size=self._job.train.batch_size,
            epoch=self._at.epoch,
            start=self._at.data,
        )

    def _log(self, window: _Window, scale: float) -> _Window:
        figures = Figures(
            self._at.epoch,
            self._at.step,
            self._at.samples,
            window.loss,
            self._learner.metrics.auc(),
            window.samples_per_s,
        )
        if self._progress.is_due:
            self._progress.show(figures, self._total_samples())
        if self._at.step % self._job.train.log_every == 0:
            values = {
                "loss": figures.loss,
                "auc": figures.auc,
                "samples_per_s": figures.samples_per_s,
                "rate_scale": scale,
            }
            self._write_event("train", values | self._learner.metrics.figures("auc"))
            return _Window()
        return window

    def _commands(self) -> dict[str, str]:
        run = shlex.quote(str(self._run.path))
        return {
            "Resume": f"elasticctr train {run}/job.yaml --resume",
            "Evaluate": f"elasticctr eval {run} --data PATH",
            "Predict": f"elasticctr predict {run} --data PATH --out scores.parquet",
        }

    def _note_data(self, dataset: Dataset, split: str) -> None:
        stats = dataset.stats
        self._write_event(
            "data", {"split": split, "files": len(dataset.sources), "rows": stats.samples, "bad_lines": stats.bad}
        )

    def _write_event(self, event: str, values: dict[str, Any]) -> None:
        self._events.write(event, self._at.step, self._at.samples, self._at.epoch, values)

    def _evaluate_valid(self) -> None:
        if self._valid_data is None:
            return
        best = self._evaluations.get("valid")
        metrics = self._evaluate(self._valid_data, "valid")
        self._watch_overfitting(metrics)
        if self._schedule.see_evaluation(metrics):
            note_best(self._run.checkpoints, self._checkpoint())
        elif best is not None:
            self._evaluations["valid"] = best  # reported with the state that is kept

    def _watch_overfitting(self, metrics: dict[str, Any]) -> None:
        epoch = self._at.epoch if self._at.data is None else self._at.epoch + 1
        train_logloss = self._learner.metrics.compute().logloss
        if (found := self._schedule.overfitting.see(epoch, train_logloss, metrics)) is not None:
            self._write_event("warning", found.as_dict())
            self._progress.note(f"warning: {found.text}")

    def _evaluate_test(self) -> None:
        if self._test_data is not None:
            self._evaluate(self._test_data, "test")

    def _take_best(self) -> None:
        """What a finished run is tested with, and what it published last, is its best state."""
        best = best_checkpoint(self._run.path)
        is_used = self._test_data is not None or self._on_step is not None
        if best is None or best.step == self._at.step or not is_used:
            return
        self._learner.load(best)
        if self._on_step is not None:
            self._on_step(self._learner, best.step, True)

    def _evaluate(self, dataset: Dataset, split: str) -> dict[str, Any]:
        settings = self._job.train
        result = evaluate(
            self._learner, dataset, batch_size=settings.eval_batch_size, gauc_slot=settings.gauc_slot, quiet=True
        )
        self._evaluations[split] = result
        self._note_data(dataset, split)
        metrics = values_of(result)
        self._write_event("eval", {"split": split, **metrics})
        self._progress.note(f"{split}: {describe(metrics)}  after {self._at.samples:,} samples")
        return metrics

    def _checkpoint(self) -> Path:
        at = self._at
        if self._newest is not None and self._newest[0] == at.step:
            # What a step is followed by (evaluation, the end of an epoch) happens again on resuming from it.
            return self._newest[1]
        trainer = {
            "epoch": at.epoch,
            "step": at.step,
            "samples": at.samples,
            "epoch_samples": at.epoch_samples,
            "data": at.data,
            "schedule": self._schedule.state(),
            "valid": self._evaluations.get("valid"),
            "identity": self._learner.identity,
        }
        path = write_checkpoint(self._run.checkpoints, at.step, trainer, self._learner.save)
        rotate(self._run.checkpoints, self._job.train.keep_checkpoints)
        self._newest = (at.step, path)
        self._write_event("checkpoint", {"path": f"checkpoints/{path.name}"})
        return path

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.trainer
        if state["data"] is not None and "ledger" in state["data"]:
            raise FailedPrecondition(
                f"{checkpoint.path}: was written in the middle of epoch {state['epoch']} by a run with pservers. "
                "Several chunks are begun, which one process cannot take up; nothing is lost: go on with `elasticctr "
                f"train {self._run.path}/job.yaml --on local --pservers 1 --trainers 1 --resume`. Checkpoints between "
                "epochs can be resumed by one process"
            )
        self._learner.load(checkpoint)
        self._schedule.restore(state["schedule"])
        if state["valid"] is not None:
            self._evaluations["valid"] = state["valid"]
        self._newest = (checkpoint.step, checkpoint.path)
        self._at = _Position(state["epoch"], state["step"], state["samples"], state["epoch_samples"], state["data"])

    def _total_samples(self) -> int | None:
        """Of the whole run, as far as it can be judged now."""
        settings, at = self._job.train, self._at
        limits = [settings.steps * settings.batch_size] if settings.steps else []
        rows = self._train_data.estimate_rows(at.data) if at.data else None
        if rows is not None:
            limits.append(at.samples - at.epoch_samples + rows * (settings.epochs - at.epoch))
        return min(limits, default=None)

    def _end(self, began: float, *, is_finished: bool) -> Result:
        metrics = {"train": self._learner.metrics.report(), **self._evaluations}
        seconds = time.monotonic() - began
        reason = "interrupted" if not is_finished else "early stopping" if self._schedule.should_stop else "finished"
        self._write_event("end", {"reason": reason, "seconds": seconds, "samples_per_s": self._trained / seconds})
        if self._at.samples == 0:
            raise FailedPrecondition("no sample was trained on; check data.train")
        self._run.write_metrics(metrics)
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


class _Window:
    """Loss and speed since the last line of the log."""

    def __init__(self) -> None:
        self.samples = 0
        self._loss = 0.0
        self._since = time.monotonic()

    def add(self, n: int, loss: float) -> None:
        self.samples += n
        self._loss += n * loss

    @property
    def loss(self) -> float:
        return self._loss / max(self.samples, 1)

    @property
    def samples_per_s(self) -> float:
        return self.samples / max(time.monotonic() - self._since, 1e-9)
