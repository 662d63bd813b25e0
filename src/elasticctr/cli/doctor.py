"""`elasticctr doctor`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.obs.machine import Check, check_machine

_MARKS = {"ok": "ok", "warning": "warning", "error": "ERROR"}


def doctor(
    folder: Annotated[Path, typer.Option(help="Directory whose disk space and write permission to check.")] = Path(),
    json: JsonOption = False,
) -> None:
    """Check this machine and installation.

    Exits with status 15 if training is not possible.

    Example: `elasticctr doctor --folder runs`
    """
    checks = check_machine(folder)
    can_train = not any(check.status == "error" for check in checks)
    if json:
        print_json({"can_train": can_train, "checks": [asdict(check) for check in checks]})
    else:
        print_table("ElasticCTR on this machine", ("", "what", "found", "what to do"), [_row(c) for c in checks])
        typer.echo("Training is possible." if can_train else "Training is not possible yet: see ERROR above.")
    if not can_train:
        raise typer.Exit(15)


def _row(check: Check) -> tuple[str, str, str, str]:
    return _MARKS[check.status], check.name, check.found, check.advice
