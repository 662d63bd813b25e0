"""`elasticctr verify --requests`: logged requests through the trainer's code."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console

from elasticctr.cli.output import print_json, print_pairs
from elasticctr.errors import Corruption
from elasticctr.obs.progress import Progress
from elasticctr.versions import Repository


def verify_requests(requests: Sequence[str], repo: str, model: str | None, as_json: bool) -> None:
    """Ends with the status of Corruption where server and trainer do not agree."""
    from elasticctr.serve.feedback.replay import Replayer

    with Progress("replaying", unit="requests", console=Console(quiet=True) if as_json else None) as progress:
        result = Replayer(Repository(repo), model, progress.advance).run(list(requests))
    summary = result.summary()
    if as_json:
        print_json(summary)
    else:
        shown = {name: value for name, value in summary.items() if value not in (0, "", None, {})}
        shown |= {"worst": f"{result.worst:.3g}"}
        if (first := result.first_difference) is not None:
            shown["first_difference"] = (
                f"request {first.id!r}, version {first.version}, sample {first.sample}, slot {first.slot!r}: "
                f"the server made {_cut(first.logged)}, the trainer's code {_cut(first.made)}"
            )
        print_pairs((name, str(value)) for name, value in shown.items())
        typer.echo("all right" if result.is_same else "server and trainer do not agree")
    if not result.is_same:
        raise typer.Exit(Corruption.exit_status)


def _cut(values: list[object]) -> str:
    return str(values) if len(values) <= 8 else f"{str(values[:8])[:-1]}, …] of {len(values)}"
