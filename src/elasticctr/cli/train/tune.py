"""`elasticctr tune`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.output import JsonOption, print_json, print_table


def tune(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to search over (YAML).")],
    trials: Annotated[int | None, typer.Option(help="Settings to try: trials of the file.")] = None,
    parallel: Annotated[int | None, typer.Option(help="Runs at a time: parallel of the file.")] = None,
    study_dir: Annotated[str | None, typer.Option(help="Where results go: study_dir of the file.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the search that study_dir holds.")] = False,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Search for good settings of a job: many runs over a declared space.

    Each trial is an ordinary run in its own directory; hopeless ones are ended early. Ctrl-C stops the search.
    The job with the best values is written to `best.yaml`, plots and a table of all trials to `report.html`.

    Example: `elasticctr tune tune.yaml --trials 40 --parallel 2`
    """
    from elasticctr.tune.settings import load_tune
    from elasticctr.tune.tuner import Tuner

    changes = list(overrides or [])
    for key, value in (("trials", trials), ("parallel", parallel), ("study_dir", study_dir)):
        if value is not None:
            changes.append(f"{key}={value}")
    settings = load_tune(file, changes)
    found = Tuner(settings, quiet=as_json).run(resume=resume)
    if as_json:
        print_json(
            {
                "study_dir": str(found.study_dir),
                "finished": found.is_finished,
                "metric": settings.metric,
                "best": None if found.best is None else asdict(found.best),
                "trials": {
                    state: sum(t.state == state for t in found.tried) for state in ("complete", "pruned", "failed")
                },
            }
        )
    else:
        sign = 1 if settings.metric == "logloss" else -1
        done = sorted((t for t in found.tried if t.score is not None), key=lambda t: sign * (t.score or 0.0))
        rows = [
            (str(t.number), f"{t.score:.5f}", *(json.dumps(t.values[k]) for k in settings.space)) for t in done[:10]
        ]
        print_table("best trials", ("#trial", f"#{settings.metric}", *settings.space), rows)
        if found.best is not None:
            typer.echo(f"best job: {found.study_dir / 'best.yaml'}\nreport: {found.study_dir / 'report.html'}")
    if not found.is_finished:
        typer.echo(f"stopped. Go on with:\n  elasticctr tune {file} --study-dir {found.study_dir} --resume", err=True)
        raise typer.Exit(130)
