"""`elasticctr eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elasticctr.cli.options.runs import CheckpointArgument, DataOption, Overrides
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cli.train.metrics import print_confidence, print_metrics, print_segments
from elasticctr.cli.train.opening import open_run
from elasticctr.errors import ConfigError

SegmentOrder = Literal["calibration", "loss", "auc"]


def evaluate(
    run: CheckpointArgument,
    data: DataOption = None,
    gauc_slot: Annotated[
        str | None,
        typer.Option(help="Slot whose first value groups samples for GAUC; default: `train.gauc_slot` of the job."),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="Also compute NDCG and recall of the top K samples of each --gauc-slot group."),
    ] = None,
    segments: Annotated[
        str | None,
        typer.Option(metavar="SLOT[,SLOT]", help="Show the values of these slots on which the model does worst."),
    ] = None,
    segments_by: Annotated[SegmentOrder, typer.Option(help="How to rank values for --segments.")] = "calibration",
    min_samples: Annotated[int, typer.Option(min=1, help="Leave values with fewer samples out of --segments.")] = 500,
    bootstrap: Annotated[
        int | None, typer.Option(min=2, help="Compute confidence intervals from this many bootstrap replicates.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Compare with another run on the same samples, with confidence intervals.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    label: Annotated[
        str | None, typer.Option(help="Label for confidence intervals and segments; default: the first.")
    ] = None,
    save_as: Annotated[
        str | None,
        typer.Option(metavar="SPLIT", help="Add the result to the run's metrics.json and report under this name."),
    ] = None,
    overrides: Overrides = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a trained model on any data with the same schema.

    Uses the checkpoint with the best validation result, else the newest.

    Example: `elasticctr eval runs/deepfm --data logs/2026-11-14/`

    Example: `elasticctr eval runs/deepfm --segments site,app --bootstrap 500 --save-as test`
    """
    learner, dataset, job = open_run(run, data, overrides)
    from elasticctr.train.evaluation import evaluate as evaluate_data
    from elasticctr.train.loading import load_learner
    from elasticctr.train.metrics.analysis import Analysis
    from elasticctr.train.metrics.label_metrics import values_of
    from elasticctr.train.report.report import write_report
    from elasticctr.train.run_directory import RunDirectory

    gauc_slot = gauc_slot or job.train.gauc_slot
    if top_k is not None and gauc_slot is None:
        raise ConfigError("--top-k ranks samples within groups; name the slot that groups them with --gauc-slot")
    analysis = None
    if segments or bootstrap or against:
        analysis = Analysis(
            dataset.schema,
            label=label,
            segments=[name.strip() for name in segments.split(",")] if segments else [],
            segments_by=segments_by,
            min_samples=min_samples,
            replicates=bootstrap,
            seed=seed,
            against=load_learner(against)[0] if against is not None else None,
        )
    metrics = evaluate_data(
        learner,
        dataset,
        batch_size=job.train.eval_batch_size,
        gauc_slot=gauc_slot,
        top_k=top_k,
        analysis=analysis,
        quiet=as_json,
    )
    if save_as is not None:
        directory = RunDirectory.of(run)
        directory.add_metrics(save_as, metrics)
        write_report(directory.path)
    if as_json:
        print_json(metrics)
        return
    print_metrics({"data": values_of(metrics)})
    if "confidence" in metrics:
        print_confidence(metrics["confidence"])
    if "segments" in metrics:
        print_segments(metrics["segments"])
