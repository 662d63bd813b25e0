"""`elasticctr report`."""

from __future__ import annotations

import typer

from elasticctr.cli.options.runs import RunArgument
from elasticctr.cli.output import JsonOption, print_json


def report(
    run: RunArgument,
    as_json: JsonOption = False,
) -> None:
    """Regenerate a run's plots and HTML report.

    Example: `elasticctr report runs/deepfm`
    """
    from elasticctr.train.report.report import write_report

    path = write_report(run)
    if as_json:
        print_json({"report": str(path)})
    else:
        typer.echo(str(path))
