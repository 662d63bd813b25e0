"""How commands answer: tables or JSON on stdout, and one error shape.

`elasticctr: Code: message` on stderr, or with --json `{"error": {"code": …, "message": …}}` on stdout.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from elasticctr.errors import ElasticCTRError
from elasticctr.obs import console
from elasticctr.obs.plain import plain

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def print_error(error: ElasticCTRError, as_json: bool) -> None:
    if as_json:
        print_json(error.describe())
    else:
        typer.echo(f"elasticctr: {error.code}: {error}", err=True)


def print_json(result: Mapping[str, Any]) -> None:
    """One JSON document. Numbers JSON has no word for become null."""
    typer.echo(json.dumps(plain(result), ensure_ascii=False))


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """`name  value` lines, names aligned."""
    shown = list(pairs)
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        console.stdout().print(f"{name:<{width}}  {value}", markup=False, soft_wrap=True)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table: drawn on a terminal, tab-separated otherwise. Columns whose name starts with '#' are numbers."""
    out = console.stdout()
    names = [column.removeprefix("#") for column in columns]
    if not out.is_terminal:
        out.print(f"\n# {title}", markup=False, soft_wrap=True)
        for row in (names, *rows):
            # No wrapping, no expansion of tabs: cut -f must work on it.
            typer.echo("\t".join(row))
        return
    table = Table(title=title, title_justify="left", header_style="bold")
    for column, name in zip(columns, names, strict=True):
        table.add_column(name, justify="right" if column.startswith("#") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell.replace("[", "\\[") for cell in row))
    out.print(table)
