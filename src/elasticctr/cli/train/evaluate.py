"""`elasticctr eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cli.train.metrics import print_confidence, print_metrics, print_segments
from elasticctr.cli.train.train import DataOption, Overrides, open_run
from elasticctr.errors import ConfigError

SegmentOrder = Literal["calibration", "loss", "auc"]


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, or one checkpoint in it.")],
    data: DataOption = None,
    gauc_slot: Annotated[str | None, typer.Option(help="Slot whose first value groups samples for GAUC.")] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Also NDCG and recall of the first K of each group of --gauc-slot.")
    ] = None,
    segments: Annotated[
        str | None, typer.Option(metavar="SLOT[,SLOT]", help="Slots whose values the model does worst on are shown.")
    ] = None,
    segments_by: Annotated[SegmentOrder, typer.Option(help="What makes a value one of the worst.")] = "calibration",
    min_samples: Annotated[
        int, typer.Option(min=1, help="Values with fewer samples are not looked at by --segments.")
    ] = 500,
    bootstrap: Annotated[
        int | None, typer.Option(min=2, help="Confidence intervals from so many bootstrap replicates.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Another run: how the two differ on the same samples, with confidence.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    label: Annotated[
        str | None, typer.Option(help="Label that confidence and segments are of; default: first.")
    ] = None,
    save: Annotated[
        str | None, typer.Option(metavar="SPLIT", help="Keep the result in the run's metrics.json and report as this.")
    ] = None,
    overrides: Overrides = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a trained model on any data of the same schema.

    Takes the checkpoint with the best validation result, or the newest.

    Example: `elasticctr eval runs/deepfm --data logs/2026-11-14/`

    Example: `elasticctr eval runs/deepfm --segments site,app --bootstrap 500 --save test`
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
        raise ConfigError("--top-k ranks samples within groups; say which slot groups them with --gauc-slot")
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
    if save is not None:
        directory = RunDirectory.of(run)
        directory.add_metrics(save, metrics)
        write_report(directory.path)
    if as_json:
        print_json(metrics)
        return
    print_metrics({"data": values_of(metrics)})
    if "confidence" in metrics:
        print_confidence(metrics["confidence"])
    if "segments" in metrics:
        print_segments(metrics["segments"])
