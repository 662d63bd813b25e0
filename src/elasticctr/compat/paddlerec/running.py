"""Runs the steps of a translated PaddleRec file, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticctr.compat.paddlerec.translation import PlannedRun, Translation
from elasticctr.config import parse_settings
from elasticctr.errors import AlreadyExists, ConfigError
from elasticctr.train.events import read_events
from elasticctr.train.job import Job


@dataclass(frozen=True, slots=True)
class StepResult:
    """`epochs` has the evaluation after each epoch that the file asks for."""

    name: str
    run_dir: str
    is_finished: bool
    metrics: dict[str, Any]
    epochs: dict[int, dict[str, Any]]


def run_steps(
    translation: Translation, source: str, *, resume: bool = False, quiet: bool = False
) -> Iterator[StepResult]:
    """Yields the result of each step as it ends; the last one may be of a run that was interrupted."""
    jobs = [(step, parse_settings(Job, step.job, f"{source} ({step.name})")) for step in translation.steps]
    for step, job in jobs:
        result = _evaluate(step, job) if step.kind == "evaluate" else _train(step, job, resume, quiet)
        yield result
        if not result.is_finished:
            return


def _train(step: PlannedRun, job: Job, resume: bool, quiet: bool) -> StepResult:
    from elasticctr.train.metrics.label_metrics import values_of

    run_dir = Path(job.run_dir)
    if not resume and run_dir.is_dir() and (run_dir / "checkpoints").is_dir():
        raise AlreadyExists(
            f"{run_dir} has a run already: continue it with --resume, or name another directory (model_save_path of "
            "2.x, save_checkpoint_path of 1.8)"
        )
    if job.cluster is None:
        from elasticctr.run import train

        result: Any = train(job, resume=resume, quiet=quiet)
    else:
        from elasticctr.cluster.run import EngineOptions, train_on

        engine = "torchrun" if job.cluster.strategy == "collective" else "local"
        result = train_on(job, engine, resume=resume, quiet=quiet, options=EngineOptions())
    metrics = {split: values_of(values) for split, values in result.metrics.items()}
    epochs = dict(_epochs(run_dir, *step.epochs)) if step.epochs is not None and result.is_finished else {}
    return StepResult(step.name, str(run_dir), result.is_finished, metrics, epochs)


def _evaluate(step: PlannedRun, job: Job) -> StepResult:
    from elasticctr.train.evaluation import evaluate
    from elasticctr.train.loading import load_learner
    from elasticctr.train.metrics.label_metrics import values_of
    from elasticctr.train.reading import open_dataset

    run_dir = Path(job.run_dir)
    if not run_dir.is_dir():
        raise ConfigError(
            f"runner {step.name}: {run_dir} has no run to evaluate; train first, with save_checkpoint_path: {run_dir}"
        )
    learner, trained = load_learner(run_dir, [])
    dataset = open_dataset(job.data.train, trained.samples)
    result = evaluate(learner, dataset, batch_size=trained.train.eval_batch_size)
    return StepResult(step.name, str(run_dir), True, {"infer": values_of(result)}, {})


def _epochs(run_dir: Path, first: int, last: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The evaluations at the ends of the epochs [first, last), counted from 0 as PaddleRec does."""
    evaluations = [event for event in read_events(run_dir / "events.jsonl") if _is_evaluation(event)]
    for epoch, event in enumerate(evaluations):
        if first <= epoch < last:
            yield epoch, event


def _is_evaluation(event: dict[str, Any]) -> bool:
    return event.get("event") == "eval" and event.get("split") == "valid"
