"""A training run in one process: its steps, evaluations and checkpoints. loop.py says when each happens."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from elasticctr.data.dataset import Dataset
from elasticctr.errors import FailedPrecondition
from elasticctr.models.model import Model
from elasticctr.train.checkpoint import Checkpoint, note_best, open_checkpoint, rotate, write_checkpoint
from elasticctr.train.course import Course
from elasticctr.train.evaluation import evaluate
from elasticctr.train.interrupt import Interrupt
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.loop import Executor, RunLoop, find_better
from elasticctr.train.overfitting import Overfitting
from elasticctr.train.reading import open_dataset, read_ahead
from elasticctr.train.record import Record
from elasticctr.train.result import Result
from elasticctr.train.run_directory import RunDirectory
from elasticctr.train.vocabulary import find_vocabulary

# Called after every step and at each epoch's end with the learner, the step and whether an epoch ends.
StepHook = Callable[[Learner, int, bool], None]


class Trainer(Executor):
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
        self._course = Course(job)
        self._run = RunDirectory(job.run_dir)
        self._newest: tuple[int, Path] | None = None  # step and path of the last checkpoint
        given = {"train": job.data.train, "valid": job.data.valid, "test": job.data.test}
        self._data = {
            split: open_dataset(settings, job.samples, seed=job.train.seed if split == "train" else 0)
            for split, settings in given.items()
            if settings is not None
        }

    def run(self, *, resume: bool = False) -> Result:
        self._run.begin(self._job, resume=resume)
        if (vocabulary := find_vocabulary(self._job, resume=resume)) is not None:
            self._learner.plan.use(vocabulary)
        if resume:
            self._restore(open_checkpoint(self._run.path))
        began, log_every = time.monotonic(), self._job.train.log_every
        with (
            Record(self._run, self._course, log_every=log_every, quiet=self._quiet, is_resumed=resume) as self._record,
            Interrupt() as self._interrupt,
        ):
            self._record.write("start", {"commands": self._commands()})
            is_finished = RunLoop(self._job, self).run()
            metrics = {"train": self._learner.metrics.report(), **self._course.evaluations}
            result = self._record.end(metrics, is_finished=is_finished, began=began)
            self._run.write_metrics(metrics)
            return result

    @property
    def course(self) -> Course:
        return self._course

    @property
    def is_checkpoint_due(self) -> bool:
        saved = 0 if self._newest is None else self._newest[0]
        return self._course.passed(self._job.train.checkpoint_every, saved)

    @property
    def is_interrupted(self) -> bool:
        return self._interrupt.is_set

    def train_epoch(self) -> Generator[None, None, None]:
        course, learner, record = self._course, self._learner, self._record
        if course.data is None:
            learner.clear_metrics()
            course.begin_epoch()
        record.begin_window()
        items = read_ahead(
            self._data["train"],
            learner.look_up,
            batch_size=self._job.train.batch_size,
            epoch=course.epoch,
            start=course.data,
        )
        with closing(items):
            for item in items:
                scale = course.schedule.lr_scale(course.step)
                loss, n = learner.step(item, scale), len(item.batch)
                course.count(n)
                course.data = item.position
                if self._on_step is not None:
                    self._on_step(learner, course.step, False)
                record.step(n, n * loss, learner.metrics, scale, self._total_samples)
                yield
                if course.is_over:
                    break
        record.show_rest(learner.metrics, self._total_samples)
        self._note_data("train")
        if not course.is_over:
            course.end_epoch()

    def evaluate(self, split: str) -> dict[str, Any]:
        train = self._job.train
        dataset, batch_size = self._data[split], train.eval_batch_size
        result = evaluate(self._learner, dataset, batch_size=batch_size, gauc_slot=train.gauc_slot, quiet=True)
        self._note_data(split)
        self._record.note_evaluation(split, result)
        return result

    def train_logloss(self) -> float | None:
        return self._learner.metrics.compute().logloss

    def warn(self, found: Overfitting) -> None:
        self._record.warn(found)

    def checkpoint(self) -> Path:
        step = self._course.step
        if self._newest is not None and self._newest[0] == step:
            # What follows this step (an evaluation, the end of an epoch) happens again when the run resumes from it.
            return self._newest[1]
        state = self._course.state(self._learner.identity)
        path = write_checkpoint(self._run.checkpoints, step, state, self._learner.save)
        rotate(self._run.checkpoints, self._job.train.keep_checkpoints)
        self._newest = (step, path)
        self._record.write("checkpoint", {"path": f"checkpoints/{path.name}"})
        return path

    def note_best(self, checkpoint: Path) -> None:
        note_best(self._run.checkpoints, checkpoint)

    def end_epoch(self) -> None:
        pass  # it ended with its data

    def publish(self) -> None:
        if self._on_step is not None:
            self._on_step(self._learner, self._course.step, True)

    def finish(self) -> None:
        if "test" not in self._data and self._on_step is None:
            return
        if (best := find_better(self._run, self._course)) is not None:
            self._learner.load(best)
            if self._on_step is not None:
                self._on_step(self._learner, best.step, True)

    def _commands(self) -> dict[str, str]:
        run = shlex.quote(str(self._run.path))
        return {
            "Resume": f"elasticctr train {run}/job.yaml --resume",
            "Evaluate": f"elasticctr eval {run} --data PATH",
            "Predict": f"elasticctr predict {run} --data PATH --out scores.parquet",
        }

    def _note_data(self, split: str) -> None:
        dataset: Dataset = self._data[split]
        self._record.note_data(split, len(dataset.sources), dataset.stats)

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.trainer
        if state["data"] is not None and "ledger" in state["data"]:
            raise FailedPrecondition(
                f"{checkpoint.path}: was written in the middle of epoch {state['epoch']} by a run with pservers. "
                "Several of its chunks are begun, and one process cannot continue them. Nothing is lost: continue with "
                f"`elasticctr train {self._run.path}/job.yaml --on local --pservers 1 --trainers 1 --resume`. One "
                "process can resume from checkpoints between epochs"
            )
        self._learner.load(checkpoint)
        self._course.restore(state)
        self._newest = (checkpoint.step, checkpoint.path)

    def _total_samples(self) -> int | None:
        """Of the whole run, as far as it can be estimated now."""
        settings, at = self._job.train, self._course
        limits = [settings.steps * settings.batch_size] if settings.steps else []
        rows = self._data["train"].estimate_rows(at.data) if at.data else None
        if rows is not None:
            limits.append(at.samples - at.epoch_samples + rows * (settings.epochs - at.epoch))
        return min(limits, default=None)
