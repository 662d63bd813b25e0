"""Shows what is in an index file or a built version, and checks it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.cube.directory import read_version
from elasticctr.errors import Corruption

_SCAN_BUCKETS = 64


@dataclass(frozen=True, slots=True)
class InspectedRow:
    """One feasign of a file: its row as floats (raw: bytes); None for a tombstone or a missing feasign."""

    feasign: int
    row: list[float] | bytes | None
    found: bool


@dataclass(frozen=True, slots=True)
class CubeInspection:
    path: str
    info: _native.CubeInfo
    is_verified: bool
    entries: tuple[InspectedRow, ...]

    @property
    def keys(self) -> int:
        return self.info.rows + self.info.tombstones

    @property
    def load(self) -> float:
        """The share of feasign places in use."""
        return self.keys / max(7 * self.info.buckets, 1)

    @property
    def bytes_per_key(self) -> float:
        return self.info.file_bytes / max(self.keys, 1)

    @property
    def overhead_bytes_per_key(self) -> float:
        return (self.info.file_bytes - self.info.rows * self.info.row_bytes) / max(self.keys, 1)


def inspect_file(
    path: str | Path, *, verify: bool = False, keys: Sequence[int] = (), sample: int = 3, digest: str | None = None
) -> CubeInspection:
    """Opens a file. `verify` reads all of it and compares `digest`, if given. Raises Corruption for damage."""
    if verify and digest is not None:
        with Path(path).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise Corruption(f"{path}: is not the file that its shard.json lists; fetch or build it again")
    index = _native.CubeIndex.open(str(path), "mapped", verify)
    entries = _look_up(index, np.array(keys, dtype=np.uint64)) if keys else _first(index, sample)
    return CubeInspection(str(path), index.info, verify, tuple(entries))


def inspect_directory(
    directory: str | Path, *, verify: bool = False, keys: Sequence[int] = (), sample: int = 3
) -> list[CubeInspection]:
    """Inspects every file of a built version. Always checks its listings."""
    found = []
    for shard_directory, listing in read_version(Path(directory).resolve()).shards:
        for file in listing.files:
            path = shard_directory / file.name
            info = _native.CubeIndex.open(str(path)).info
            if (info.name, info.version, info.parent, info.shard, info.shards) != (
                f"{listing.model}/{file.table}",
                listing.version,
                listing.parent,
                listing.shard,
                listing.shards,
            ):
                raise Corruption(f"{path}: is {info.name} version {info.version}, not the one in its shard.json")
            owned = [key for key in keys if _owns(info, key)]
            shown = 0 if keys else sample
            found.append(inspect_file(path, verify=verify, keys=owned, sample=shown, digest=file.sha256))
    return found


def _owns(info: _native.CubeInfo, feasign: int) -> bool:
    owner = feasign % info.shards if info.sharding == "modulo" else _native.shard_of(feasign, info.shards)
    return bool(owner == info.shard)


def _look_up(index: _native.CubeIndex, keys: NDArray[np.uint64]) -> list[InspectedRow]:
    rows, found = index.lookup(keys)
    return [
        InspectedRow(int(key), _shown(index.info, row) if is_found else None, bool(is_found))
        for key, row, is_found in zip(keys, rows, found, strict=True)
    ]


def _first(index: _native.CubeIndex, count: int) -> list[InspectedRow]:
    feasigns, live, rows = index.scan(0, _SCAN_BUCKETS)
    entries = []
    row = iter(rows)
    for feasign, is_live in zip(feasigns[:count], live[:count], strict=True):
        entries.append(InspectedRow(int(feasign), _shown(index.info, next(row)) if is_live else None, bool(is_live)))
    return entries


def _shown(info: _native.CubeInfo, row: NDArray[Any]) -> list[float] | bytes:
    if info.encoding == "raw":
        return row.tobytes()
    values = _native.decode_rows(np.ascontiguousarray(row).reshape(1, -1), info.encoding, info.dim)
    return [float(value) for value in values[0]]
