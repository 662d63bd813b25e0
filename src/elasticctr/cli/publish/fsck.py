"""`elasticctr fsck`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console

from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.cli.publish.publish import RepoArgument
from elasticctr.errors import Corruption, NotFound
from elasticctr.obs.progress import Progress
from elasticctr.versions import Repository


def fsck(
    repo: RepoArgument,
    model: Annotated[str | None, typer.Option(help="Only this model; default: all.")] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make lost or damaged donefiles anew from the versions that are there.")
    ] = False,
    checksums: Annotated[
        bool, typer.Option("--checksums", help="Read every file and compare its digest, not only its size.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Look a repository over: damaged donefile lines, missing or damaged files, broken chains, what was left behind.

    Ends with the status of Corruption if something is broken. Nothing is changed without --rebuild, which keeps good
    lines and puts the old donefile aside. Rollbacks whose lines are lost cannot be known: the newest version is live
    then.

    Example: `elasticctr fsck /srv/models --model ctr --rebuild`
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
            f"{done['model']}: donefile made anew: {done['kept']} lines kept, {done['dropped']} damaged ones dropped, "
            f"versions announced again: {added}"
        )
        if done["aside"]:
            typer.echo(f"the old one is {done['aside']}")
        typer.echo("rollbacks whose lines were lost are not in it: see `elasticctr versions` for what is live now")
    if found:
        rows = [
            [f["model"], f["kind"], str(f["version"] or "-"), "broken" if f["is_broken"] else "note", f["what"]]
            for f in found
        ]
        print_table("findings", ["model", "kind", "#version", "state", "what"], rows)
    if is_whole:
        typer.echo(f"{repo}: nothing is broken in {', '.join(models)}")
