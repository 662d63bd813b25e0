"""`elasticctr explain`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from elasticctr.cli.options.runs import CheckpointArgument, DataOption, Overrides
from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.cli.train.metrics import show_figure
from elasticctr.cli.train.opening import open_run


def explain(
    run: CheckpointArgument,
    data: DataOption = None,
    samples: Annotated[int, typer.Option(min=10, help="Use this many samples from the start of the data.")] = 20000,
    repeats: Annotated[int, typer.Option(min=1, help="Number of shuffles of each slot.")] = 3,
    predictions: Annotated[int, typer.Option(min=0, help="Number of samples to explain one by one.")] = 5,
    label: Annotated[str | None, typer.Option(help="Label to explain; default: the first.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the shuffles.")] = 0,
    overrides: Overrides = None,
    as_json: JsonOption = False,
) -> None:
    """Show which slots a model relies on and what each adds to a prediction.

    Also names dead and redundant slots. Writes `explain.json` to the run directory and regenerates the report.

    Example: `elasticctr explain runs/deepfm`

    Example: `elasticctr explain runs/deepfm --data today.txt --samples 50000 --predictions 20 --json`
    """
    learner, dataset, _ = open_run(run, data, overrides)
    from elasticctr.train.explain import explain as explain_model
    from elasticctr.train.metrics.analysis import find_label
    from elasticctr.train.report.report import write_report
    from elasticctr.train.run_directory import RunDirectory

    found = explain_model(
        learner,
        dataset,
        samples=samples,
        repeats=repeats,
        predictions=predictions,
        label=find_label(dataset.schema, label),
        seed=seed,
        quiet=as_json,
    )
    directory = RunDirectory.of(run)
    directory.write_explained(found)
    report = write_report(directory.path)
    if as_json:
        print_json(found)
    else:
        _print(found)
        typer.echo(f"report: {report}")


def _print(found: dict[str, Any]) -> None:
    rows = []
    for slot in found["slots"]:
        losses = [slot[name][key] for name in ("auc_loss", "logloss_gain") for key in ("mean", "lo", "hi")]
        note = slot["dead"] or ("" if slot["logloss_gain"]["is_clear"] else "may be chance")
        rows.append([slot["slot"], *(show_figure(value) for value in (*losses, slot["gradient"])), note])
    columns = ["slot", "#auc lost", "#lo", "#hi", "#logloss gained", "#lo", "#hi", "#gradient", "note"]
    print_table(f"slots, over {found['samples']:,} samples", columns, rows)
    if found["redundant"]:
        pairs = [
            [one["slot"], one["given"], show_figure(one["determined"]), show_figure(one["similarity"])]
            for one in found["redundant"]
        ]
        print_table("redundant slots", ["slot", "known from", "#share known", "#similarity"], pairs)
    for number, one in enumerate(found["predictions"], start=1):
        added = [["(baseline)", show_figure(one["baseline"])]]
        added += [[name, show_figure(value)] for name, value in one["contributions"].items()]
        title = f"prediction {number}: score {one['score']:.5f}, label {one['label']:g}"
        print_table(title, ["slot", "#adds to the logit"], added)
