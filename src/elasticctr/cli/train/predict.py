"""`elasticctr predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.runs import CheckpointArgument, DataOption, Overrides
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cli.train.opening import open_run


def predict(
    run: CheckpointArgument,
    out: Annotated[Path, typer.Option("--out", help="File for the scores: Parquet if it ends in .parquet, else text.")],
    data: DataOption = None,
    overrides: Overrides = None,
    as_json: JsonOption = False,
) -> None:
    """Score samples with a trained model.

    Writes one score per sample and label, in the order of the data. Bad lines get no score; their number is printed.

    Example: `elasticctr predict runs/deepfm --data today.txt --out scores.parquet`
    """
    learner, dataset, job = open_run(run, data, overrides, require_label=False)
    from elasticctr.train.prediction import predict as predict_data

    rows = predict_data(learner, dataset, out, batch_size=job.train.eval_batch_size, quiet=as_json)
    bad = dataset.stats.bad
    if as_json:
        print_json({"out": str(out), "rows": rows, "bad_lines": bad})
    else:
        typer.echo(f"{rows:,} scores in {out}" + (f"; {bad:,} bad lines have none" if bad else ""))
