"""`elasticctr versions list`."""

from __future__ import annotations

import json
import time
from typing import Any

from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.cli.versions.repository import OnlyModel, RepoArgument, summarize
from elasticctr.errors import ElasticCTRError, NotFound
from elasticctr.versions import Manifest, Repository


def list_versions(
    repo: RepoArgument,
    model: OnlyModel = None,
    as_json: JsonOption = False,
) -> None:
    """List the versions in a repository and mark the live one.

    Example: `elasticctr versions list /srv/models --model ctr`
    """
    repository = Repository(repo)
    names = [model] if model is not None else repository.models()
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
        print_json({"versions": listed})
        return
    columns = ["model", "#version", "kind", "#parent", "#rows", "#gone", "#bytes", "#auc", "created", "state"]
    print_table("versions", columns, [_row(version) for version in listed])


def _hint(repository: Repository) -> str:
    """Names the models whose versions cannot be listed because their donefile is lost."""
    from elasticctr.versions.fsck import find_models

    lost = sorted(set(find_models(repository)) - set(repository.models()))
    return f". {', '.join(lost)} lost its donefile: run elasticctr versions fsck {repository.url}" if lost else ""


def _list(repository: Repository, model: str) -> list[dict[str, Any]]:
    pins = repository.pinned(model)
    try:
        live = repository.live(model).version
    except NotFound:
        live = 0
    return [
        {
            **summarize(manifest),
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
