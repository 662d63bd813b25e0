"""`elasticctr run`: PaddleRec's configuration files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.cli.train.metrics import print_metrics

if TYPE_CHECKING:
    from elasticctr.compat.paddlerec.running import StepResult
    from elasticctr.compat.paddlerec.translation import Translation


def run(
    config: Annotated[Path, typer.Option("--model", "-m", metavar="FILE", help="PaddleRec's config.yaml, 1.8 or 2.x.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--opt", "-o", metavar="KEY=VALUE", help="Override a key of the file; model=NAME picks a model."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print the job files and run nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a configuration file of PaddleRec.

    Keys that have no effect here are listed with the reason. The networks are ElasticCTR's models of the same names.

    Example: `elasticctr run -m models/rank/wide_deep/config.yaml -o runner.epochs=2`

    Example: `elasticctr run -m config.yaml -o model=dnn --explain`
    """
    from elasticctr.compat.paddlerec.translation import translate

    translation = translate(config, overrides or [])
    if explain:
        _explain(translation, as_json)
        return
    from elasticctr.compat.paddlerec.running import run_steps

    if not as_json:
        _print_notes(translation)
    results = []
    for result in run_steps(translation, str(config), resume=resume, quiet=as_json):
        results.append(result)
        if not as_json:
            _print_result(result)
    if as_json:
        steps = [{"name": r.name, "run_dir": r.run_dir, "finished": r.is_finished, "metrics": r.metrics,
                  "epochs": {str(epoch): values for epoch, values in r.epochs.items()}} for r in results]  # fmt: skip
        print_json({"steps": steps, "notes": _notes(translation)})
    if not results[-1].is_finished:
        typer.echo(f"interrupted; continue with: elasticctr run -m {config} --resume", err=True)
        raise typer.Exit(130)


def _explain(translation: Translation, as_json: bool) -> None:
    if as_json:
        steps = [{"name": step.name, "kind": step.kind, "job": step.job} for step in translation.steps]
        print_json({"steps": steps, "notes": _notes(translation)})
        return
    for step in translation.steps:
        typer.echo(f"# {step.name}: {step.kind}\n{yaml.safe_dump(step.job, sort_keys=False)}")
    _print_notes(translation)


def _notes(translation: Translation) -> list[dict[str, str]]:
    return [{"key": note.key, "reason": note.text} for note in translation.notes]


def _print_notes(translation: Translation) -> None:
    if translation.notes:
        rows = [(note.key, note.text) for note in translation.notes]
        print_table("keys that have no effect, or another one", ("key", "reason"), rows)


def _print_result(result: StepResult) -> None:
    typer.echo(f"\n# {result.name}")
    print_metrics(result.metrics)
    if result.epochs:
        rows = [(str(n), f"{values['auc']:.4f}", f"{values['logloss']:.4f}") for n, values in result.epochs.items()]
        print_table("after each epoch", ("epoch", "#auc", "#logloss"), rows)
    typer.echo(f"run: {result.run_dir}")
