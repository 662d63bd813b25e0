"""Builds the cube files of a version from rows, one per table and shard (docs/formats/cube-directory.md).

`build_tables` takes any row sources; `builds.py` finds them for a published version or for files. Memory stays within
`BuildOptions.memory_bytes` for tables of any size.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elasticctr import _native
from elasticctr.cube.build.version_source import ChainSource
from elasticctr.cube.build.workspace import building
from elasticctr.cube.layout import BUILD, FORMAT, SHARD, Encoding, Kind, Sharding
from elasticctr.cube.shared.names import MAX_SHARDS, check_model, shard_directory
from elasticctr.errors import ConfigError, FailedPrecondition
from elasticctr.storage.atomic import explain_write, write_atomic
from elasticctr.versions.interchange.rows import Block, RowInfo, RowSource
from elasticctr.versions.manifest import check_version

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    shards: int = 1
    sharding: Sharding = "buckets"
    encoding: Encoding | None = None  # None: the source's encoding
    memory_bytes: int = 1 << 30
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= MAX_SHARDS:
            raise ConfigError(f"{self.shards} shards; give 1 to {MAX_SHARDS}")


@dataclass(frozen=True, slots=True)
class Target:
    """The version to build. Parent 0 means a base."""

    model: str
    version: int
    parent: int = 0

    @property
    def kind(self) -> Kind:
        return "delta" if self.parent else "base"


@dataclass(frozen=True, slots=True)
class BuiltTable:
    """One table's files, and their digests once they are on disk."""

    table: str
    infos: list[_native.CubeInfo]
    digests: list[Future[str]]
    duplicates: int
    spilled_bytes: int


@dataclass(frozen=True, slots=True)
class BuildResult:
    directory: Path
    target: Target
    shards: int
    tables: tuple[str, ...]
    rows: int
    tombstones: int
    duplicates: int
    """Rows and tombstones that were replaced because their feasign occurred again."""
    row_bytes: int
    """Bytes of all rows, without feasigns and index."""
    bytes: int
    spilled_bytes: int
    seconds: float

    @classmethod
    def of(
        cls,
        place: Path,
        target: Target,
        options: BuildOptions,
        built: Sequence[BuiltTable],
        total_bytes: int,
        started_s: float,
    ) -> BuildResult:
        infos = [info for table in built for info in table.infos]
        return cls(
            directory=place,
            target=target,
            shards=options.shards,
            tables=tuple(table.table for table in built),
            rows=sum(info.rows for info in infos),
            tombstones=sum(info.tombstones for info in infos),
            duplicates=sum(table.duplicates for table in built),
            row_bytes=sum(info.rows * info.row_bytes for info in infos),
            bytes=total_bytes,
            spilled_bytes=sum(table.spilled_bytes for table in built),
            seconds=time.monotonic() - started_s,
        )

    @property
    def overhead_bytes_per_key(self) -> float:
        return (self.bytes - self.row_bytes) / max(self.rows + self.tombstones, 1)

    @property
    def rows_s(self) -> float:
        return (self.rows + self.tombstones) / max(self.seconds, 1e-9)

    @property
    def mb_s(self) -> float:
        return self.bytes / 1e6 / max(self.seconds, 1e-9)


def build_tables(
    tables: Mapping[str, RowSource | ChainSource],
    out: str | Path,
    target: Target,
    options: BuildOptions | None = None,
    advance: Advance = lambda count: None,
) -> BuildResult:
    """Builds `out`/MODEL/VERSION completely or not at all.

    `advance` counts every row twice: when it was read and when it was sorted.
    """
    options = options or BuildOptions()
    started_s = time.monotonic()
    check_model(target.model)
    check_version(target.version)
    if not tables:
        raise ConfigError("a version needs tables; name at least one")
    place = Path(out) / target.model / str(target.version)
    built = []
    with building(place) as directory, ThreadPoolExecutor(max(2, options.threads), "digest") as pool:
        shards = [directory / shard_directory(shard, options.shards) for shard in range(options.shards)]
        try:
            for shard in shards:
                shard.mkdir()
        except OSError as e:
            raise explain_write(e, place) from None
        for table in sorted(tables):
            built.append(_build_table(check_model(table), tables[table], shards, target, options, pool, advance))
        total = write_listings(directory, shards, built, target, options)
    return BuildResult.of(place, target, options, built, total, started_s)


def _build_table(
    table: str,
    source: RowSource | ChainSource,
    shards: Sequence[Path],
    target: Target,
    options: BuildOptions,
    pool: ThreadPoolExecutor,
    advance: Advance,
) -> BuiltTable:
    info = _encoded(source.info, options.encoding)
    builder = _native.CubeBuilder(
        f"{target.model}/{table}",
        target.kind,
        info.encoding,
        info.dim,
        info.row_bytes,
        options.sharding,
        options.shards,
        target.version,
        target.parent,
        str(shards[0].parent),
        options.memory_bytes,
        source.count or 0,
        options.threads,
        isinstance(source, ChainSource),
    )
    for step in source.steps() if isinstance(source, ChainSource) else [source]:
        # If a version has both a row and a tombstone of a feasign, the row counts.
        for feasigns in step.gone():
            builder.add_gone(np.ascontiguousarray(feasigns))
        for feasigns, rows in _recoded(step.blocks(), step.info, info):
            builder.add(np.ascontiguousarray(feasigns), np.ascontiguousarray(rows))
            advance(len(feasigns))
    paths = [str(shard / f"{table}.cube") for shard in shards]
    infos, duplicates, spilled_bytes = _finish(builder, paths, pool, advance)
    return BuiltTable(table, infos, [pool.submit(settle, Path(path)) for path in paths], duplicates, spilled_bytes)


def _finish(builder: _native.CubeBuilder, paths: list[str], pool: ThreadPoolExecutor, advance: Advance) -> Any:
    finishing = pool.submit(builder.finish, paths)
    done = 0
    while not wait([finishing], timeout=0.2).done:
        progress = builder.progress
        advance(progress - done)
        done = progress
    return finishing.result()


def _encoded(info: RowInfo, encoding: Encoding | None) -> RowInfo:
    if encoding is None or encoding == info.encoding:
        return info
    if "raw" in (encoding, info.encoding):
        raise FailedPrecondition(f"{info.encoding} rows cannot be encoded as {encoding}; raw rows stay raw")
    widths = {"fp32": 4 * info.dim, "fp16": 2 * info.dim, "int8": 4 + info.dim}
    return RowInfo(encoding, info.dim, widths[encoding])


def _recoded(blocks: Iterator[Block], source: RowInfo, target: RowInfo) -> Iterator[Block]:
    if source == target:
        yield from blocks
        return
    for feasigns, rows in blocks:
        values = _native.decode_rows(np.ascontiguousarray(rows), source.encoding, source.dim)
        yield feasigns, _native.encode_rows(values, target.encoding)


def settle(path: Path) -> str:
    """Syncs a file to disk and returns its SHA-256. The disk works while the digest is computed."""
    try:
        with path.open("rb") as file, ThreadPoolExecutor(1, "sync") as pool:
            synced = pool.submit(os.fsync, file.fileno())
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                digest = hashlib.sha256(mapped).hexdigest()
            synced.result()
            return digest
    except OSError as e:
        raise explain_write(e, path) from None


def write_listings(
    directory: Path, shards: Sequence[Path], built: Sequence[BuiltTable], target: Target, options: BuildOptions
) -> int:
    """Writes shard.json of every shard, then build.json. Returns the bytes of the index files."""
    common = {
        "format": FORMAT,
        "model": target.model,
        "version": target.version,
        "kind": target.kind,
        "parent": target.parent,
        "shards": options.shards,
        "sharding": options.sharding,
    }
    shard_files = []
    for number, shard in enumerate(shards):
        files = [
            {
                "table": table.table,
                "name": f"{table.table}.cube",
                "bytes": table.infos[number].file_bytes,
                "sha256": table.digests[number].result(),
                "rows": table.infos[number].rows,
                "tombstones": table.infos[number].tombstones,
            }
            for table in built
        ]
        data = _write_json(shard / SHARD, {**common, "shard": number, "files": files})
        digest = hashlib.sha256(data).hexdigest()
        shard_files.append({"name": f"{shard.name}/{SHARD}", "bytes": len(data), "sha256": digest})
    infos = [info for table in built for info in table.infos]
    total: int = sum(info.file_bytes for info in infos)
    rows = sum(info.rows for info in infos)
    _write_json(
        directory / BUILD,
        {**common, "shard_files": shard_files, "rows": rows, "bytes": total, "created": time.time()},
    )
    return total


def _write_json(path: Path, value: Mapping[str, Any]) -> bytes:
    data = json.dumps(value, indent=1).encode() + b"\n"
    write_atomic(path, data)
    return data
