"""`elasticctr cube inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from elasticctr.cli.output import JsonOption, print_json, print_pairs, print_table
from elasticctr.cube.inspect import CubeInspection, InspectedRow, inspect_directory, inspect_file
from elasticctr.errors import ConfigError

_SHOWN_VALUES = 6


def inspect(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Index file, or directory of a built version or shard.")],
    verify: Annotated[bool, typer.Option("--verify", help="Verify the checksums of the whole file.")] = False,
    keys: Annotated[str, typer.Option(help="Comma-separated feasigns to look up; default: show the first rows.")] = "",
    rows: Annotated[int, typer.Option(min=0, max=64, help="Number of rows to show of each file.")] = 3,
    json: JsonOption = False,
) -> None:
    """Show the header and some rows of an index file, or check all of it.

    Example: `elasticctr cube inspect builds/ctr/7 --verify`
    """
    wanted = _parse_keys(keys)
    if path.is_dir():
        found = inspect_directory(path, verify=verify, keys=wanted, sample=rows)
    else:
        found = [inspect_file(path, verify=verify, keys=wanted, sample=rows)]
    if json:
        print_json({"files": [_as_dict(one) for one in found]})
        return
    for one in found:
        _show(one)


def _parse_keys(text: str) -> list[int]:
    try:
        keys = [int(part, 0) for part in text.replace(",", " ").split()]
    except ValueError:
        raise ConfigError(f"--keys {text!r}: feasigns are whole numbers, for example 17,42") from None
    if any(not 0 <= key < 1 << 64 for key in keys):
        raise ConfigError("--keys: a feasign is from 0 to 2^64 - 1")
    return keys


def _show(one: CubeInspection) -> None:
    info = one.info
    over = f" over version {info.parent}" if info.parent else ""
    print_pairs(
        [
            ("file", one.path),
            ("table", f"{info.name}, version {info.version}, {info.kind}{over}"),
            ("shard", f"{info.shard} of {info.shards}, by {info.sharding}"),
            ("rows", f"{info.rows:,} of {info.row_bytes} bytes ({info.encoding}, {info.dim} floats)"),
            ("tombstones", f"{info.tombstones:,}"),
            ("buckets", f"{info.buckets:,}, {one.load:.0%} full"),
            ("bytes", f"{info.file_bytes:,}, {one.overhead_bytes_per_key:.1f} per key beside the row"),
            ("checked", "every byte" if one.is_verified else "the header; --verify checks every byte"),
        ]
    )
    if one.entries:
        shown = [(str(entry.feasign), _value(entry)) for entry in one.entries]
        print_table("Rows", ("#feasign", "row"), shown)


def _value(entry: InspectedRow) -> str:
    if entry.row is None:
        return "none"
    if isinstance(entry.row, bytes):
        return entry.row[:32].hex()
    values = " ".join(f"{value:.6g}" for value in entry.row[:_SHOWN_VALUES])
    return values + (" …" if len(entry.row) > _SHOWN_VALUES else "")


def _as_dict(one: CubeInspection) -> dict[str, Any]:
    info = one.info
    names = ("name", "kind", "encoding", "sharding", "dim", "row_bytes", "shard", "shards", "version", "parent")
    counts = ("rows", "tombstones", "homes", "buckets", "file_bytes")
    return {
        "path": one.path,
        **{name: getattr(info, name) for name in (*names, *counts)},
        "load": one.load,
        "bytes_per_key": one.bytes_per_key,
        "overhead_bytes_per_key": one.overhead_bytes_per_key,
        "is_verified": one.is_verified,
        "entries": [
            {
                "feasign": entry.feasign,
                "found": entry.found,
                "row": entry.row.hex() if isinstance(entry.row, bytes) else entry.row,
            }
            for entry in one.entries
        ],
    }
