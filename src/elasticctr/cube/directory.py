"""Finds and reads built versions on disk (docs/formats/cube-directory.md) and checks their listings.

A version is laid out either as built, shard-0000-of-0002/ and so on with a build.json, or as a server keeps it: the
files of one shard with its shard.json.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from elasticctr.cube.layout import BUILD, SHARD
from elasticctr.cube.shared.listing import ShardListing, parse_build, parse_shard
from elasticctr.errors import ConfigError, Corruption, FailedPrecondition, NotFound


@dataclass(frozen=True, slots=True)
class BuiltVersion:
    """The local shards of one version: all of them, or a server's one."""

    directory: Path
    model: str
    version: int
    parent: int
    shards: tuple[tuple[Path, ShardListing], ...]

    def files(self, shard: int) -> list[tuple[str, str]]:
        """(table, path) of the shard at a position in `shards`."""
        directory, listing = self.shards[shard]
        return [(file.table, str(directory / file.name)) for file in listing.files]


def find_versions(directory: Path) -> list[int]:
    """The numbers of the versions in a model's directory, ascending."""
    if not directory.is_dir():
        return []
    return sorted(
        int(entry.name)
        for entry in directory.iterdir()
        if entry.name.isdigit() and ((entry / BUILD).is_file() or (entry / SHARD).is_file())
    )


def find_models(directory: Path) -> list[str]:
    """Models with at least one version."""
    if not directory.is_dir():
        raise NotFound(f"{directory}: no such directory")
    return sorted(entry.name for entry in directory.iterdir() if entry.is_dir() and find_versions(entry))


def pick_model(directory: Path, model: str | None) -> str:
    """`model`, or the only one there is."""
    models = find_models(directory)
    if model is not None and model in models:
        return model
    if model is not None or not models:
        known = f"it has {', '.join(models)}" if models else "it has no built versions"
        raise NotFound(f"{directory}: no model {model!r}; {known}")
    if len(models) > 1:
        raise ConfigError(f"{directory} has models {', '.join(models)}; choose one")
    return models[0]


def read_version(directory: Path) -> BuiltVersion:
    """A version's listings, checked against each other and against their directories."""
    if (directory / BUILD).is_file():
        build = parse_build((directory / BUILD).read_bytes(), str(directory / BUILD))
        shards = []
        for file in build.shard_files:
            path = directory / file.name
            data = path.read_bytes() if path.is_file() else b""
            if hashlib.sha256(data).hexdigest() != file.sha256:
                raise Corruption(f"{path}: differs from build.json; build the version again")
            shards.append((path.parent, parse_shard(data, str(path))))
    elif (directory / SHARD).is_file():
        shards = [(directory, parse_shard((directory / SHARD).read_bytes(), str(directory / SHARD)))]
    else:
        raise NotFound(f"{directory}: not a built version: it has neither {BUILD} nor {SHARD}")
    first = shards[0][1]
    if directory.name != str(first.version):
        raise Corruption(f"{directory}: holds version {first.version}; move it to its own directory")
    for path, listing in shards:
        if (listing.model, listing.version, listing.parent) != (first.model, first.version, first.parent):
            raise Corruption(f"{path}: belongs to {listing.model} version {listing.version}, the other shards do not")
    return BuiltVersion(directory, first.model, first.version, first.parent, tuple(shards))


def read_chain(directory: Path, version: int) -> list[BuiltVersion]:
    """A version of a model's directory and those it depends on, base first."""
    chain = [read_version(directory / str(version))]
    while chain[0].parent:
        try:
            chain.insert(0, read_version(directory / str(chain[0].parent)))
        except NotFound:
            raise FailedPrecondition(
                f"{directory}: version {chain[0].version} depends on {chain[0].parent}, which is missing; fetch or "
                "build it first"
            ) from None
    return chain
