"""`elasticctr versions rollback`."""

from __future__ import annotations

from typing import Annotated

import typer

from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cli.versions.repository import RepoArgument, summarize
from elasticctr.versions import Repository
from elasticctr.versions.rollback import rollback as roll_back


def rollback(
    repo: RepoArgument,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")],
    version: Annotated[
        int | None, typer.Argument(metavar="VERSION", help="Version to make live; default: the previously live one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an earlier version live again.

    Everything that follows the repository activates it. No files are copied or removed.

    Example: `elasticctr versions rollback /srv/models ctr 6`
    """
    manifest = roll_back(Repository(repo), model, version)
    if as_json:
        print_json({**summarize(manifest), "live": True})
    else:
        typer.echo(f"{manifest.model} version {manifest.version} is live")
