"""LIVE: the version of a model that a directory of versions serves (docs/formats/cube-directory.md)."""

from __future__ import annotations

from pathlib import Path

from elasticctr.errors import Corruption, DataError, NotFound
from elasticctr.storage.atomic import read_json, write_json
from elasticctr.versions.manifest import check_version

LIVE = "LIVE"


def read_live(directory: Path) -> tuple[int, int]:
    """(version, the one before it or 0) of a model's directory; (0, 0) without a LIVE file."""
    try:
        value = read_json(directory / LIVE)
    except NotFound:
        return 0, 0
    try:
        version, previous = check_version(value.get("version")), value.get("previous") or 0
        return version, check_version(previous) if previous else 0
    except DataError as e:
        raise Corruption(f"{directory / LIVE}: {e}; activate a version to rewrite it") from None


def write_live(directory: Path, version: int) -> None:
    """Makes `version` the live one, and the version that was live the previous one."""
    live, previous = read_live(directory)
    write_json(directory / LIVE, {"version": version, "previous": previous if live == version else live})
