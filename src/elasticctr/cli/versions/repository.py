"""The repository argument, and what commands tell of a version in it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from elasticctr.versions import Manifest

RepoArgument = Annotated[str, typer.Argument(metavar="REPO", help="Repository: directory, s3:// or hdfs:// URL.")]
OnlyModel = Annotated[str | None, typer.Option("--model", help="Only this model; default: all.")]


def summarize(manifest: Manifest) -> dict[str, Any]:
    names = ("model", "version", "kind", "parent", "base", "rows", "gone", "bytes", "created")
    return {name: getattr(manifest, name) for name in names}
