"""Runs, and changes to the settings of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
CheckpointArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, or a checkpoint in it.")]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", help="File, directory, glob or URL; default: the job's test data, else its validation data."
    ),
]
JobConfig = Annotated[
    Path, typer.Option("--config", metavar="JOB_FILE", help="Job file (YAML), the same for every role.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, such as train.epochs=3; repeatable."),
]
