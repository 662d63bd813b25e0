"""`elasticctr demo`: the whole way on this machine, by the commands a user would type."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.errors import AlreadyExists, ConfigError, InternalError

MODELS = ("wide_deep", "deepfm")


def demo(
    directory: Annotated[Path, typer.Option("--dir", help="Where everything is written.")] = Path("demo"),
    rows: Annotated[int, typer.Option(min=10_000, help="Samples to make and learn from.")] = 400_000,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove what an earlier demo left in the directory.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a click log, inspect it, train two models, compare them with the best attainable AUC.

    Example: `elasticctr demo --rows 200000`
    """
    log = directory / "log"
    _prepare(directory, overwrite)
    truth = _run(
        as_json,
        "data",
        "synth",
        str(log),
        "--rows",
        str(rows),
        "--files",
        "10",
        "--format",
        "slot",
        "--max-cardinality",
        "1000",
    )
    _run(as_json, "data", "inspect", str(log), "--schema", str(log / "schema.yaml"), "--rows", "20000")
    job = directory / "job.yaml"
    job.write_text(yaml.safe_dump(_job(log), sort_keys=False), encoding="utf-8")
    results = {}
    for name in MODELS:
        run = str(directory / "runs" / name)
        _run(as_json, "train", str(job), "--run-dir", run, "--set", f"model.name={name}")
        results[name] = _run(True, "eval", run)
    attainable = json.loads((log / "truth.json").read_text(encoding="utf-8"))
    summary = {
        "attainable": {"auc": attainable["auc"], "logloss": attainable["logloss"]},
        **{name: {key: results[name][key] for key in ("auc", "logloss", "ne", "copc")} for name in MODELS},
    }
    reports = {name: str(directory / "runs" / name / "report.html") for name in MODELS}
    if as_json:
        print_json({"models": summary, "reports": reports, "synth": truth})
        return
    figures = [
        [name, f"{m['auc']:.4f}", f"{m['logloss']:.4f}", f"{m['auc'] / attainable['auc']:.1%}"]
        for name, m in summary.items()
    ]
    print_table("held-out tenth of the log", ["model", "#auc", "#logloss", "#of attainable auc"], figures)
    for path in reports.values():
        typer.echo(f"report: {path}")


def _job(log: Path) -> dict[str, Any]:
    return {
        "schema": str((log / "schema.yaml").absolute()),
        "data": {
            "train": {"path": str(log / "part-*"), "fraction": [0.0, 0.8], "shuffle_rows": 100_000},
            "valid": {"path": str(log / "part-*"), "fraction": [0.8, 0.9]},
            "test": {"path": str(log / "part-*"), "fraction": [0.9, 1.0]},
        },
        "model": {"dim": 9, "hidden": [128, 64]},
        "train": {"batch_size": 512, "epochs": 2, "early_stopping": {"patience": 1}},
    }


def _prepare(directory: Path, overwrite: bool) -> None:
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory}: is a file; give the name of a directory with --dir")
    if directory.exists() and any(directory.iterdir()):
        if not overwrite:
            raise AlreadyExists(f"{directory}: is not empty; add --overwrite to start anew, or give another --dir")
        for name in ("log", "runs"):
            shutil.rmtree(directory / name, ignore_errors=True)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"{directory}: cannot be made: {e.strerror}; give another --dir") from None


def _run(as_json: bool, *arguments: str) -> dict[str, Any]:
    """Runs one command of ours. Shows it as typed, unless its JSON is wanted."""
    command = [sys.executable, "-m", "elasticctr", *arguments]
    if as_json:
        done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0:
            answer: dict[str, Any] = json.loads(done.stdout)
            return answer
    else:
        typer.echo(f"\n$ elasticctr {shlex.join(arguments)}")
        done = subprocess.run(command, text=True, check=False)
        if done.returncode == 0:
            return {}
    raise InternalError(f"elasticctr {shlex.join(arguments)} ended with status {done.returncode}: {done.stdout or ''}")
