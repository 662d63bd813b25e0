"""`elasticctr versions fsck`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console

from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.cli.versions.repository import OnlyModel, RepoArgument
from elasticctr.errors import Corruption, NotFound
from elasticctr.obs.progress import Progress
from elasticctr.versions import Repository


def fsck(
    repo: RepoArgument,
    model: OnlyModel = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Recreate lost or damaged donefiles from the existing versions.")
    ] = False,
    checksums: Annotated[bool, typer.Option("--checksums", help="Also read every file and verify its digest.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a repository for damage and repair its donefiles.

    Reports damaged donefile lines, missing or damaged files, broken chains and leftovers, and exits with status 14
    (Corruption) if anything is broken. Changes nothing without --rebuild, which keeps the good lines and sets the old
    donefile aside. If the line of a rollback is lost, the newest version becomes live.

    Example: `elasticctr versions fsck /srv/models --model ctr --rebuild`
    """
    from elasticctr.versions.fsck import check_model, find_models, rebuild_donefile

    repository = Repository(repo)
    models = [name for name in find_models(repository) if model in (None, name)]
    if not models:
        raise NotFound(f"{repo}: no published model {'here' if model is None else repr(model)}; check the location")
    rebuilt: list[dict[str, Any]] = []
    for name in models if rebuild else []:
        done = rebuild_donefile(repository, name)
        if done is not None:
            rebuilt.append({"model": name, **asdict(done), "added": list(done.added)})
    total = None if checksums else sum(len(repository.numbers(name)) for name in models)
    unit = "bytes" if checksums else "versions"
    with Progress("checking", total=total, unit=unit, console=Console(quiet=True) if as_json else None) as progress:
        found = [f for m in models for f in check_model(repository, m, checksums=checksums, advance=progress.advance)]
    is_whole = not any(finding.is_broken for finding in found)
    if as_json:
        print_json({"models": models, "rebuilt": rebuilt, "findings": [asdict(f) for f in found], "is_whole": is_whole})
    else:
        _print(repo, models, rebuilt, [asdict(finding) for finding in found], is_whole)
    if not is_whole:
        raise typer.Exit(Corruption.exit_status)


def _print(
    repo: str, models: list[str], rebuilt: list[dict[str, Any]], found: list[dict[str, Any]], is_whole: bool
) -> None:
    for done in rebuilt:
        added = ", ".join(str(version) for version in done["added"]) or "none"
        typer.echo(
            f"{done['model']}: donefile recreated: {done['kept']} lines kept, {done['dropped']} damaged lines dropped, "
            f"versions announced again: {added}"
        )
        if done["aside"]:
            typer.echo(f"the old donefile is {done['aside']}")
        typer.echo("rollbacks whose lines were lost are missing: see `elasticctr versions list` for the live version")
    if found:
        rows = [
            [f["model"], f["kind"], str(f["version"] or "-"), "broken" if f["is_broken"] else "note", f["what"]]
            for f in found
        ]
        print_table("findings", ["model", "kind", "#version", "state", "what"], rows)
    if is_whole:
        typer.echo(f"{repo}: nothing is broken in {', '.join(models)}")
