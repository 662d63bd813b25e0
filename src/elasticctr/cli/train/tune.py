"""`elasticctr tune`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.runs import Overrides
from elasticctr.cli.options.settings import setting
from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.tune.settings import TuneSettings, load_tune


def tune(
    tune_file: Annotated[Path, typer.Argument(metavar="TUNE_FILE", help="Settings of the search (YAML).")],
    trials: Annotated[int | None, setting(TuneSettings, "trials")] = None,
    concurrency: Annotated[int | None, setting(TuneSettings, "parallel", "--concurrency")] = None,
    study_dir: Annotated[str | None, setting(TuneSettings, "study_dir")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the search in --study-dir.")] = False,
    overrides: Overrides = None,
    as_json: JsonOption = False,
) -> None:
    """Search for good settings of a job.

    Each trial is an ordinary run in its own directory; unpromising trials are stopped early. Ctrl-C stops the search.
    Writes the best job to `best.yaml`, and plots and a table of all trials to `report.html`.

    Example: `elasticctr tune tune.yaml --trials 40 --concurrency 2`
    """
    from elasticctr.tune.tuner import Tuner

    changes = list(overrides or [])
    for key, value in (("trials", trials), ("parallel", concurrency), ("study_dir", study_dir)):
        if value is not None:
            changes.append(f"{key}={value}")
    settings = load_tune(tune_file, changes)
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
        typer.echo(
            f"stopped. Resume with:\n  elasticctr tune {tune_file} --study-dir {found.study_dir} --resume", err=True
        )
        raise typer.Exit(130)
