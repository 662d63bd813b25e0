"""`elasticctr feedback replay`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from elasticctr.cli.options.settings import setting
from elasticctr.cli.output import JsonOption, print_json, print_pairs
from elasticctr.errors import Corruption, NotFound
from elasticctr.obs.progress import Progress
from elasticctr.serve.settings import ServedModelSettings
from elasticctr.versions import Repository


def replay(
    requests: Annotated[list[str], typer.Argument(metavar="LOG", help="Request logs: directories or files.")],
    repo: Annotated[str, setting(ServedModelSettings, "repo")],
    model: Annotated[str | None, typer.Option(help="Replay only this model's requests.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay logged requests through the trainer's code and compare the scores.

    Prints the largest difference between a logged and a recomputed score, and the first slot that differs. Exits with
    status 14 (Corruption) if server and trainer disagree.

    Example: `elasticctr feedback replay log --repo /srv/models`
    """
    from elasticctr.serve.feedback.replay import Replayer

    with Progress("replaying", unit="requests", console=Console(quiet=True) if as_json else None) as progress:
        result = Replayer(Repository(repo), model, progress.advance).run(requests)
    if not result.requests:
        raise NotFound(f"{', '.join(requests)}: no logged request{'' if model is None else f' of {model!r}'} to replay")
    summary = result.summary()
    if as_json:
        print_json(summary)
    else:
        shown = {name: value for name, value in summary.items() if value not in (0, "", None, {})}
        shown |= {"worst": f"{result.worst:.3g}"}
        if (first := result.first_difference) is not None:
            shown["first_difference"] = (
                f"request {first.id!r}, version {first.version}, sample {first.sample}, slot {first.slot!r}: "
                f"the server used {_cut(first.logged)}, the trainer's code {_cut(first.made)}"
            )
        print_pairs((name, str(value)) for name, value in shown.items())
        typer.echo("server and trainer agree" if result.is_same else "server and trainer disagree")
    if not result.is_same:
        raise typer.Exit(Corruption.exit_status)


def _cut(values: list[object]) -> str:
    return str(values) if len(values) <= 8 else f"{str(values[:8])[:-1]}, …] of {len(values)}"
