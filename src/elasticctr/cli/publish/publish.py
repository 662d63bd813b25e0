"""`elasticctr publish`, `versions`, `verify`, `rollback`."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from elasticctr.cli.output import JsonOption, print_json, print_pairs, print_table
from elasticctr.errors import ConfigError, ElasticCTRError, NotFound
from elasticctr.obs.progress import Progress
from elasticctr.versions import Manifest, Repository

if TYPE_CHECKING:
    from elasticctr.versions.removal import RemovalPlan

RepoArgument = Annotated[str, typer.Argument(metavar="REPO", help="Directory, s3:// or hdfs:// URL of a repository.")]


class EncodingChoice(StrEnum):
    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"


def publish(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    to: Annotated[str, typer.Option("--to", metavar="REPO", help="Repository: directory, s3:// or hdfs:// URL.")],
    model: Annotated[str | None, typer.Option(help="Name of the model; default: the run directory's.")] = None,
    checkpoint: Annotated[str, typer.Option(help="best, last, or the step of a checkpoint.")] = "best",
    base: Annotated[bool, typer.Option("--base", help="A complete version, even where a delta would do.")] = False,
    delta: Annotated[bool, typer.Option("--delta", help="Only a delta; refused where it needs a base.")] = False,
    encoding: Annotated[EncodingChoice, typer.Option(help="Of the rows.")] = EncodingChoice.FP32,
    max_chain: Annotated[int, typer.Option(min=0, help="Deltas on one base before the next base.")] = 24,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Remove older versions past this many, but none in use.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a trained run as an immutable, numbered version, and make it live.

    A delta holds the rows changed since the version published last from this run; without one it is a base.

    Example: `elasticctr publish runs/deepfm --to /srv/models --model ctr --encoding fp16 --keep 5`
    """
    if base and delta:
        raise ConfigError("--base and --delta exclude each other")
    from elasticctr.models.cpu import prepare_torch

    prepare_torch()
    from elasticctr.publish.runs import publish_run

    with Progress("publishing", unit="rows", console=Console(quiet=True) if as_json else None) as progress:
        manifest, metrics = publish_run(
            run,
            to,
            model=model,
            checkpoint=checkpoint,
            kind="base" if base else "delta" if delta else "auto",
            encoding=encoding.value,
            max_chain=max_chain,
            keep=keep,
            advance=progress.advance,
        )
    loss = metrics.get("encoding")
    if as_json:
        print_json({**_summary(manifest), "repository": to, "encoding_loss": loss})
        return
    on = f" on {manifest.parent}" if manifest.parent else ""
    typer.echo(
        f"{manifest.model} version {manifest.version} ({manifest.kind}{on}): {manifest.rows:,} rows, "
        f"{manifest.gone:,} gone, {manifest.bytes:,} bytes"
    )
    if loss is not None:
        print_pairs((name, f"{value:.7g}" if isinstance(value, float) else str(value)) for name, value in loss.items())


def versions(
    repo: RepoArgument,
    model: Annotated[str | None, typer.Option(help="Only this model; default: all.")] = None,
    prune: Annotated[
        int | None, typer.Option("--prune", metavar="N", min=1, help="Keep the newest N and all in use; remove others.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --prune: remove nothing; show what would go and why the rest stays.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the versions in a repository; the live one is marked.

    Example: `elasticctr versions /srv/models --model ctr --prune 5 --dry-run`
    """
    repository = Repository(repo)
    names = [model] if model is not None else repository.models()
    if dry_run and prune is None:
        raise ConfigError("--dry-run goes with --prune")
    plans: list[RemovalPlan] = []
    if prune is not None:
        from elasticctr.versions.removal import prune as prune_model

        plans = [prune_model(repository, name, prune, dry_run=dry_run) for name in names]
    if dry_run and any(plan.fates for plan in plans):
        _print_plans(plans, as_json)
        return
    removed = [{"model": plan.model, "version": version} for plan in plans for version in plan.going]
    listed = [row for name in names for row in _list(repository, name)]
    if model is not None and not listed:
        known = ", ".join(repository.models()) or "none"
        raise NotFound(f"{repo}: no published version of {model!r}; it has models: {known}{_hint(repository)}")
    if not listed:
        raise NotFound(
            f"{repo}: no published model here; check the location, or publish one with elasticctr publish"
            f"{_hint(repository)}"
        )
    if as_json:
        print_json({"versions": listed, "removed": removed})
        return
    for gone in removed:
        typer.echo(f"removed {gone['model']} version {gone['version']}")
    columns = ["model", "#version", "kind", "#parent", "#rows", "#gone", "#bytes", "#auc", "created", "state"]
    print_table("versions", columns, [_row(version) for version in listed])


def verify(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="REPO/MODEL/VERSION, REPO/MODEL, or a run.")
    ] = None,
    requests: Annotated[
        list[str] | None,
        typer.Option(metavar="LOG", help="Instead: replay this request log (file or directory; repeatable)."),
    ] = None,
    repo: Annotated[str | None, typer.Option(metavar="REPO", help="With --requests: where its versions are.")] = None,
    model: Annotated[str | None, typer.Option(help="With --requests: only this model's requests.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a version (REPO/MODEL: the live one) or a run: every digest, every row's place, and the scores of samples.

    With --requests, replay what servers logged through the trainer's code instead: the largest difference of a score
    and the first slot that differs.

    Example: `elasticctr verify /srv/models/ctr/7`, `elasticctr verify --requests log --repo /srv/models`
    """
    if requests:
        from elasticctr.cli.publish.replay import verify_requests

        if target is not None or repo is None:
            raise ConfigError("--requests needs --repo, and no TARGET: the log names its versions")
        verify_requests(requests, repo, model, as_json)
        return
    if target is None or repo is not None or model is not None:
        raise ConfigError("name a version as REPO/MODEL/VERSION, or a run; --repo and --model go with --requests")
    if Path(target, "job.yaml").exists():
        result: dict[str, Any] = _verify_run(Path(target))
    else:
        from elasticctr.versions.verification import verify_version

        repository, model, version = _open(target)
        total = sum(manifest.bytes for manifest in repository.chain(model, version))
        with Progress(
            "verifying", total=total, unit="bytes", console=Console(quiet=True) if as_json else None
        ) as progress:
            checked = verify_version(repository, model, version, progress.advance)
        result = {name: getattr(checked, name) for name in checked.__slots__} | {"chain": list(checked.chain)}
    if as_json:
        print_json(result)
    else:
        print_pairs((name, str(value)) for name, value in result.items())
        typer.echo("all right")


def rollback(
    repo: RepoArgument,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")],
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", help="Which one; default: the one live before.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an earlier version live again. Nothing is copied or removed.

    Example: `elasticctr rollback /srv/models ctr 6`
    """
    from elasticctr.versions.rollback import rollback as roll_back

    manifest = roll_back(Repository(repo), model, version)
    if as_json:
        print_json({**_summary(manifest), "live": True})
    else:
        typer.echo(f"{manifest.model} version {manifest.version} is live")


def _hint(repository: Repository) -> str:
    """Versions without a donefile are not listed, but they are there."""
    from elasticctr.versions.fsck import find_models

    lost = sorted(set(find_models(repository)) - set(repository.models()))
    return f". {', '.join(lost)} lost its donefile: run elasticctr fsck {repository.url}" if lost else ""


def _print_plans(plans: list[RemovalPlan], as_json: bool) -> None:
    fates = [(plan.model, fate) for plan in plans for fate in plan.fates]
    if as_json:
        print_json({"plan": [{"model": m, "version": f.version, "goes": f.goes, "why": f.why} for m, f in fates]})
        return
    rows = [[model, str(fate.version), "goes" if fate.goes else "stays", fate.why] for model, fate in fates]
    print_table("what --prune would do", ["model", "#version", "what", "why"], rows)


def _list(repository: Repository, model: str) -> list[dict[str, Any]]:
    pins = repository.pinned(model)
    try:
        live = repository.live(model).version
    except NotFound:
        live = 0
    return [
        {
            **_summary(manifest),
            "auc": _auc(repository, manifest),
            "live": manifest.version == live,
            "pinned_by": pins.get(manifest.version, []),
        }
        for manifest in repository.versions(model)
    ]


def _auc(repository: Repository, manifest: Manifest) -> float | None:
    try:
        metrics = json.loads(repository.read_file(manifest.model, manifest.version, "metrics.json"))
    except (ElasticCTRError, ValueError):
        return None
    for found in (metrics.get("valid"), metrics.get("train"), (metrics.get("splits") or {}).get("train")):
        if isinstance(found, dict) and isinstance(found.get("auc"), (int, float)):
            return float(found["auc"])
    return None


def _row(version: dict[str, Any]) -> list[str]:
    pins = [f"pinned by {name}" for name in version["pinned_by"]]
    return [
        version["model"],
        str(version["version"]),
        version["kind"],
        str(version["parent"] or "-"),
        f"{version['rows']:,}",
        f"{version['gone']:,}",
        f"{version['bytes']:,}",
        "-" if version["auc"] is None else f"{version['auc']:.5f}",
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(version["created"])),
        ", ".join(["live"] * version["live"] + pins),
    ]


def _summary(manifest: Manifest) -> dict[str, Any]:
    names = ("model", "version", "kind", "parent", "base", "rows", "gone", "bytes", "created")
    return {name: getattr(manifest, name) for name in names}


def _open(target: str) -> tuple[Repository, str, int]:
    """REPO/MODEL/VERSION or REPO/MODEL taken apart."""
    parent, _, last = target.rstrip("/").rpartition("/")
    if last.isdigit():
        repo, _, model = parent.rpartition("/")
        number: int | None = int(last)
    else:
        repo, model, number = parent, last, None
    if not repo or not model:
        raise ConfigError(f"{target}: name a version as REPO/MODEL/VERSION, or a run directory")
    repository = Repository(repo)
    return repository, model, repository.live(model).version if number is None else number


def _verify_run(run: Path) -> dict[str, Any]:
    """Every checkpoint of a run; the newest is loaded, which checks its tables' blocks."""
    from elasticctr.models.cpu import prepare_torch

    prepare_torch()
    from elasticctr.train.checkpoint import list_checkpoints, open_checkpoint
    from elasticctr.train.loading import load_learner

    found = [open_checkpoint(path) for path in list_checkpoints(run / "checkpoints")]
    rows = 0
    for checkpoint in found:
        learner, _ = load_learner(checkpoint.path)
        rows = sum(len(table) for table in learner.sparse.tables)
    return {"run": str(run), "checkpoints": [checkpoint.step for checkpoint in found], "rows": rows}
