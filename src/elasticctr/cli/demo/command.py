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
    directory: Annotated[Path, typer.Option("--dir", help="Where everything is written.")] = Path("demo"),
    rows: Annotated[
        int | None,
        typer.Option(min=10_000, help="Samples to make and learn from; default: 400,000, with --quick 40,000."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One small model and one prediction server, in less than a minute.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove what an earlier demo left in the directory.")
    ] = False,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Kill a trainer and a pserver while several processes train.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a click log, learn from it, publish the model, serve it, and change versions under load.

    Two models are trained and compared with the best attainable AUC. Two pservers and two trainers learn the same log
    together; with `--chaos` one of each is killed on the way, and every sample is still counted once. One model is
    published; cube servers, agents and a transfer are started as processes of their own, look-ups are compared with the
    trained table, and a delta is published, activated and rolled back while a client keeps asking. Then a prediction
    server answers over JSON, KServe and bRPC, takes up another delta under load, and its scores are compared with the
    trainer's. Everything is stopped in the end.

    With `--quick`, one model is trained on a smaller log, published, served, and asked for one prediction.

    Example: `elasticctr demo --quick`

    Example: `elasticctr demo --rows 200000 --chaos`
    """
    if quick and chaos:
        raise ConfigError("--chaos kills processes that --quick does not start; leave one of them out")
    import torch  # noqa: F401  # Missing, it is reported before anything is written.

    _prepare(directory, overwrite)
    shell = Shell(as_json)
    if quick:
        from elasticctr.cli.demo.quick import ROWS, run_quick

        answer = run_quick(shell, directory, rows or ROWS)
        if as_json:
            print_json(answer)
        return
    trained = train_models(shell, directory, rows or _ROWS)
    many = train_many(shell, directory, chaos=chaos)
    from elasticctr.cli.demo.serving import serve_model

    served = serve_model(shell, directory)
    from elasticctr.cli.demo.predicting import predict_live

    predicted = predict_live(shell, directory)
    if as_json:
        print_json({**trained, "many": many, "serving": served, "predicting": predicted})


def _prepare(directory: Path, overwrite: bool) -> None:
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory}: is a file; give the name of a directory with --dir")
    if directory.exists() and any(directory.iterdir()):
        if not overwrite:
            raise AlreadyExists(f"{directory}: is not empty; add --overwrite to start anew, or give another --dir")
        for name in _WRITTEN:
            shutil.rmtree(directory / name, ignore_errors=True)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"{directory}: cannot be made: {e.strerror}; give another --dir") from None
