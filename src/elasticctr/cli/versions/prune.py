"""`elasticctr versions prune`."""

from __future__ import annotations

from typing import Annotated

import typer

from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.cli.versions.repository import OnlyModel, RepoArgument
from elasticctr.errors import NotFound
from elasticctr.versions import Repository
from elasticctr.versions.removal import RemovalPlan
from elasticctr.versions.removal import prune as prune_model


def prune(
    repo: RepoArgument,
    keep: Annotated[int, typer.Option(min=1, help="Number of newest versions to keep, besides those in use.")],
    model: OnlyModel = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing; show what would be removed, and why the rest stays.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove old versions that nothing uses.

    Keeps the newest versions and all that are in use: the live version, pinned versions and the versions they are
    based on.

    Example: `elasticctr versions prune /srv/models --model ctr --keep 5 --dry-run`
    """
    repository = Repository(repo)
    names = [model] if model is not None else repository.models()
    plans = [prune_model(repository, name, keep, dry_run=dry_run) for name in names]
    if not any(plan.fates for plan in plans):
        raise NotFound(f"{repo}: no published version{'' if model is None else f' of {model!r}'}; nothing to prune")
    if dry_run:
        _print_plans(plans, as_json)
        return
    removed = [{"model": plan.model, "version": version} for plan in plans for version in plan.going]
    if as_json:
        print_json({"removed": removed})
        return
    for gone in removed:
        typer.echo(f"removed {gone['model']} version {gone['version']}")
    if not removed:
        typer.echo("nothing to remove")


def _print_plans(plans: list[RemovalPlan], as_json: bool) -> None:
    fates = [(plan.model, fate) for plan in plans for fate in plan.fates]
    if as_json:
        print_json({"plan": [{"model": m, "version": f.version, "goes": f.goes, "why": f.why} for m, f in fates]})
        return
    rows = [[model, str(fate.version), "goes" if fate.goes else "stays", fate.why] for model, fate in fates]
    print_table("what prune would do", ["model", "#version", "what", "why"], rows)
