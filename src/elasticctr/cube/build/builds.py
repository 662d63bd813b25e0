"""Builds versions for `elasticctr cube build` and the transfer: finds the rows, chooses names and numbers.

build_version("s3://models/repo", "ctr", 7, "/data/builds", BuildOptions(shards=2))
build_files("features/", "/data/builds", Target("ctr", 1), table="embedding")
"""

from __future__ import annotations

from pathlib import Path

from elasticctr.cube.build.builder import Advance, BuildOptions, BuildResult, Target, build_tables
from elasticctr.cube.build.version_source import ChainSource, VersionSource
from elasticctr.errors import ConfigError, NotFound
from elasticctr.storage import open_store
from elasticctr.versions.donefile import DONEFILE
from elasticctr.versions.interchange import open_rows
from elasticctr.versions.manifest import MANIFEST
from elasticctr.versions.repository import Repository


def build_version(
    repository: str | Repository,
    model: str,
    version: int,
    out: str | Path,
    options: BuildOptions | None = None,
    *,
    whole: bool = False,
    advance: Advance = lambda count: None,
) -> BuildResult:
    """Builds a published version: a delta with its own rows or, with `whole`, its whole chain as a base of its number.

    Every file is checked against the manifest, and the manifest against the donefile.
    """
    opened = Repository(repository) if isinstance(repository, str) else repository
    manifest = opened.manifest(model, version)
    if not whole or manifest.kind == "base":
        tables = {table: VersionSource(opened, manifest, table) for table in manifest.tables}
        return build_tables(tables, out, Target(model, version, manifest.parent), options, advance)
    chain = opened.chain(model, version)
    whole_tables = {table: ChainSource(opened, chain, table) for table in manifest.tables}
    return build_tables(whole_tables, out, Target(model, version), options, advance)


def build_files(
    location: str,
    out: str | Path,
    target: Target,
    options: BuildOptions | None = None,
    *,
    table: str = "embedding",
    stored: str | None = None,
    advance: Advance = lambda count: None,
) -> BuildResult:
    """Builds one table from SequenceFiles, Parquet, Arrow or text; `stored` says what binary values are."""
    return build_tables({table: open_rows(location, stored)}, out, target, options, advance)


def find_version(location: str, model: str | None, version: int | None) -> tuple[Repository, str, int] | None:
    """The published version a location names: REPO/MODEL/VERSION, REPO/MODEL, or REPO with a model; without a number
    the live one. None if the location is not in a repository."""
    parent, _, name = location.rstrip("/").rpartition("/")
    root, _, owner = parent.rpartition("/")
    if name.isdigit() and owner and open_store(location).exists(MANIFEST):
        given = Repository(root or ".")
        if model not in (None, owner) or version not in (None, int(name)):
            raise ConfigError(f"{location} is version {name} of {owner}; leave out --model and --version")
        return given, owner, int(name)
    if name and open_store(location).exists(DONEFILE):
        if model not in (None, name):
            raise ConfigError(f"{location} is model {name}; leave out --model")
        repository = Repository(parent or ".")
        return repository, name, version or repository.live(name).version
    repository = Repository(location)
    models = repository.models()
    if not models:
        return None
    if model is None and len(models) > 1:
        raise ConfigError(f"{location} has models {', '.join(models)}; choose one with --model")
    chosen = model or models[0]
    if chosen not in models:
        raise NotFound(f"{location}: no model {chosen!r}; it has {', '.join(models)}")
    return repository, chosen, version or repository.live(chosen).version


def next_version(out: str | Path, model: str) -> int:
    """One more than the newest built version of a model."""
    directory = Path(out) / model
    taken = [int(entry.name) for entry in directory.iterdir() if entry.name.isdigit()] if directory.is_dir() else []
    return max(taken, default=0) + 1
