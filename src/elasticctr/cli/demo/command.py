"""The `demo` command itself: where it writes, and its four parts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.demo.many import train_many
from elasticctr.cli.demo.shell import Shell
from elasticctr.cli.demo.training import train_models
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.errors import AlreadyExists, ConfigError

_ROWS = 400_000
_WRITTEN = ("log", "runs", "repo", "cube", "serve")


def demo(
    out: Annotated[Path, typer.Option(help="Directory for everything the demo writes.")] = Path("demo"),
    rows: Annotated[
        int | None,
        typer.Option(
            min=10_000, help="Number of samples to generate and train on; default: 400,000, with --quick 40,000."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One small model and one prediction server, in less than a minute.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Remove what an earlier demo left in --out.")] = False,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Kill a trainer and a pserver during distributed training.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the whole system on this machine: train, publish, serve and predict.

    Generates a click log and trains two models, then trains one again with two pservers and two trainers; with
    `--chaos`, one of each is killed, and every sample is still counted once. Publishes a model, starts Cube servers,
    agents and a transfer, and compares lookups with the trained table; publishes, activates and rolls back a delta
    under load. Finally starts a prediction server, queries it over JSON, KServe and bRPC, activates another delta under
    load, and compares its scores with the trainer's. All processes are stopped at the end.

    With `--quick`, one model is trained on a smaller log, published, served, and asked for one prediction.

    Example: `elasticctr demo --quick`

    Example: `elasticctr demo --rows 200000 --chaos`
    """
    if quick and chaos:
        raise ConfigError("--chaos kills processes that --quick does not start; leave one of them out")
    import torch  # noqa: F401  # If it is missing, say so before anything is written.

    _prepare(out, overwrite)
    shell = Shell(as_json)
    if quick:
        from elasticctr.cli.demo.quick import ROWS, run_quick

        answer = run_quick(shell, out, rows or ROWS)
        if as_json:
            print_json(answer)
        return
    trained = train_models(shell, out, rows or _ROWS)
    many = train_many(shell, out, chaos=chaos)
    from elasticctr.cli.demo.serving import serve_model

    served = serve_model(shell, out)
    from elasticctr.cli.demo.predicting import predict_live

    predicted = predict_live(shell, out)
    if as_json:
        print_json({**trained, "many": many, "serving": served, "predicting": predicted})


def _prepare(directory: Path, overwrite: bool) -> None:
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory}: is a file; name a directory with --out")
    if directory.exists() and any(directory.iterdir()):
        if not overwrite:
            raise AlreadyExists(f"{directory}: is not empty; add --overwrite to start over, or give another --out")
        for name in _WRITTEN:
            shutil.rmtree(directory / name, ignore_errors=True)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"{directory}: cannot be made: {e.strerror}; give another --out") from None
