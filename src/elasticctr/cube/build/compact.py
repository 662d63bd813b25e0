"""Merges a chain of built versions into one base that answers the same. Reads the index files in storage order, so
memory stays small."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elasticctr import _native
from elasticctr.cube.build.builder import BuildOptions, BuildResult, BuiltTable, Target, settle, write_listings
from elasticctr.cube.build.workspace import building
from elasticctr.cube.directory import BuiltVersion, pick_model, read_chain
from elasticctr.cube.shared.names import shard_directory
from elasticctr.errors import FailedPrecondition


def compact(
    builds: str | Path, model: str | None, version: int, out: str | Path, as_version: int | None = None
) -> BuildResult:
    """Builds `out`/MODEL/VERSION, a base, from `builds`/MODEL/VERSION and its chain."""
    started_s = time.monotonic()
    chosen = pick_model(Path(builds), model)
    chain = read_chain(Path(builds) / chosen, version)
    newest = chain[-1].shards[0][1]
    if len(chain[-1].shards) != newest.shards:
        raise FailedPrecondition(f"{chain[-1].directory}: only one shard is here; compact where the builds are")
    for below in chain:
        if [(listing.shard, listing.shards, listing.sharding) for _, listing in below.shards] != [
            (listing.shard, listing.shards, listing.sharding) for _, listing in chain[-1].shards
        ]:
            raise FailedPrecondition(f"{below.directory}: has other shards than version {version}; build it again")
    target = Target(chosen, as_version or version)
    options = BuildOptions(newest.shards, newest.sharding)
    tables = sorted({table for below in chain for table, _ in below.files(0)})
    with building(Path(out) / chosen / str(target.version)) as directory, ThreadPoolExecutor(2, "compact") as pool:
        shards = [directory / shard_directory(shard, options.shards) for shard in range(options.shards)]
        for shard in shards:
            shard.mkdir()
        built = [_compact_table(chain, table, shards, target, pool) for table in tables]
        total = write_listings(directory, shards, built, target, options)
    return BuildResult.of(Path(out) / chosen / str(target.version), target, options, built, total, started_s)


def _compact_table(
    chain: list[BuiltVersion], table: str, shards: list[Path], target: Target, pool: ThreadPoolExecutor
) -> BuiltTable:
    def compact_shard(shard: int) -> _native.CubeInfo:
        layers = [dict(version.files(shard)).get(table) for version in reversed(chain)]
        paths = [layer for layer in layers if layer is not None]
        return _native.compact_cube_files(paths, target.version, str(shards[shard] / f"{table}.cube"))

    infos = list(pool.map(compact_shard, range(len(shards))))
    return BuiltTable(table, infos, [pool.submit(settle, shard / f"{table}.cube") for shard in shards], 0, 0)
