"""`elasticctr publish`, `versions`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.publish import Manifest, Repository

RepoArgument = Annotated[str, typer.Argument(metavar="REPO", help="Directory, s3:// or hdfs:// URL of a repository.")]


def publish(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    to: Annotated[str, typer.Option("--to", metavar="REPO", help="Repository: directory, s3:// or hdfs:// URL.")],
    model: Annotated[str | None, typer.Option(help="Name of the model; default: the run directory's.")] = None,
    checkpoint: Annotated[str, typer.Option(help="best, last, or the step of a checkpoint.")] = "best",
    as_json: JsonOption = False,
) -> None:
    """Publish a trained run as an immutable, numbered version.

    Example: `elasticctr publish runs/deepfm --to /srv/models --model ctr`
    """
    from elasticctr.models.cpu import prepare_torch

    prepare_torch()
    from elasticctr.publish.publisher import publish_run

    manifest = publish_run(run, to, model=model, checkpoint=checkpoint)
    if as_json:
        print_json(_summary(manifest))
    else:
        typer.echo(
            f"{manifest.model} version {manifest.version} ({manifest.kind}): {manifest.rows:,} rows, "
            f"{manifest.bytes:,} bytes in {to}"
        )


def versions(
    repo: RepoArgument,
    model: Annotated[str | None, typer.Option(help="Only this model; default: all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the versions in a repository; the live one is marked.

    Example: `elasticctr versions /srv/models`
    """
    repository = Repository(repo)
    names = [model] if model is not None else repository.models()
    listed = []
    for name in names:
        live = repository.live(name).version
        listed += [{**_summary(manifest), "live": manifest.version == live} for manifest in repository.versions(name)]
    if as_json:
        print_json({"versions": listed})
        return
    columns = ["model", "#version", "kind", "#parent", "#rows", "#gone", "#bytes", "created", "live"]
    rows = [
        [
            v["model"],
            str(v["version"]),
            v["kind"],
            str(v["parent"] or "-"),
            f"{v['rows']:,}",
            f"{v['gone']:,}",
            f"{v['bytes']:,}",
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(v["created"])),
            "live" if v["live"] else "",
        ]
        for v in listed
    ]
    print_table("versions", columns, rows)


def _summary(manifest: Manifest) -> dict[str, Any]:
    names = ("model", "version", "kind", "parent", "rows", "gone", "bytes", "created")
    return {name: getattr(manifest, name) for name in names}
