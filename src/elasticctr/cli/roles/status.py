"""`elasticctr status`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from elasticctr.cli.options.runs import RunArgument
from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.cli.roles.running import RunToken, open_directory, tls_of, token_of
from elasticctr.cluster.engine import RoleState
from elasticctr.cluster.feed import ask_status
from elasticctr.cluster.view import COLUMNS, headline, make_rows
from elasticctr.errors import ElasticCTRError, Unauthorized
from elasticctr.train.run_directory import RunDirectory


def status(
    run: RunArgument,
    token_file: RunToken = None,
    as_json: JsonOption = False,
) -> None:
    """Show the progress and the roles of a distributed run.

    Prints rows, memory, rates, leases and restarts per role, as reported by the coordinator. If no coordinator answers,
    prints the process states recorded in the run directory.

    Example: `elasticctr status runs/deepfm`
    """
    directory = open_directory(run)
    known, why_not = _ask(directory, token_file)
    engine, states = _read_states(run)
    if as_json:
        print_json({"run_dir": str(run), "engine": engine, "coordinator": known or None, "processes": states})
        return
    typer.echo(headline(known) if known else f"no coordinator answers: {why_not}")
    rows = make_rows(known, [RoleState(**state) for state in states])
    if rows:
        print_table("roles", COLUMNS, rows)


def _ask(directory: RunDirectory, token_file: Path | None) -> tuple[dict[str, Any], str]:
    """The coordinator's status, or why there is none."""
    try:
        return ask_status(directory.path, token_of(directory, token_file), tls=tls_of(directory)), ""
    except Unauthorized:
        raise
    except ElasticCTRError as e:
        return {}, str(e)


def _read_states(run: Path) -> tuple[str | None, list[dict[str, Any]]]:
    """What the engine last noted of its processes."""
    try:
        noted = json.loads((run / "cluster" / "roles.json").read_text(encoding="utf-8"))
        return str(noted["engine"]), [dict(state) for state in noted["roles"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None, []
