"""`elasticctr cube build` and `elasticctr cube compact`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elasticctr.cli.options.sizes import parse_size
from elasticctr.cli.output import JsonOption, print_json, print_pairs
from elasticctr.cube.layout import Encoding, Sharding
from elasticctr.cube.live import write_live
from elasticctr.errors import ConfigError
from elasticctr.obs.progress import Progress

if TYPE_CHECKING:
    from elasticctr.cube.build.builder import BuildResult

OutOption = Annotated[Path, typer.Option("--out", help="Directory that gets MODEL/VERSION/.")]


def build(
    source: Annotated[
        str,
        typer.Argument(
            help="Published version (REPO/MODEL/VERSION, or REPO/MODEL for the live one), or a file, glob or directory "
            "of SequenceFiles, Parquet, Arrow or text."
        ),
    ],
    out: OutOption,
    shards: Annotated[int, typer.Option(min=1, max=4096, help="Number of shards.")] = 1,
    sharding: Annotated[
        Sharding, typer.Option(help="How feasigns choose their shard; modulo is what older clients do.")
    ] = "buckets",
    encoding: Annotated[Encoding | None, typer.Option(help="Encode the rows anew; default: as they come.")] = None,
    stored: Annotated[
        str | None, typer.Option(help="What binary values of files are: fp32 (default), fp16, int8, raw or min_max.")
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory for rows; larger tables go through the disk.")] = "1GiB",
    model: Annotated[str | None, typer.Option(help="Model; of files, its name.")] = None,
    table: Annotated[str, typer.Option(help="Table that the rows of files are of.")] = "embedding",
    version: Annotated[
        int | None,
        typer.Option(min=1, help="Version; of files, its number. Default: live, or one more than the newest."),
    ] = None,
    parent: Annotated[
        int, typer.Option(min=0, help="Of files: the version that this delta changes; 0 for a base.")
    ] = 0,
    whole: Annotated[
        bool, typer.Option("--whole", help="Of a published delta: build all it stands on too, as a base.")
    ] = False,
    activate: Annotated[
        bool, typer.Option("--activate", help="Write LIVE, so that a server of OUT serves it (one shard only).")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Build the index files that cube servers open: one per table and shard. They appear when all are complete.

    Rows of a published version are checked against its manifest. A feasign that comes twice keeps its last row.

    Example: `elasticctr cube build repo/ctr/7 --out builds --shards 2`
    """
    # Here and not above: what reads columnar files takes its time, and every command of the group would wait for it.
    from elasticctr.cube.build.builder import BuildOptions, Target
    from elasticctr.cube.build.builds import build_files, build_version, find_version, next_version

    if activate and shards != 1:
        raise ConfigError("--activate is for one shard; with more, each server has a directory and a LIVE of its own")
    options = BuildOptions(shards, sharding, encoding, parse_size(memory))
    found = find_version(source, model, version)
    with Progress("build", unit="rows") as progress:
        if found is not None:
            result = build_version(*found, out, options, whole=whole, advance=progress.advance)
        else:
            if model is None:
                raise ConfigError(f"{source} is no published version; name the model its rows are of with --model")
            target = Target(model, version or next_version(out, model), parent)
            result = build_files(source, out, target, options, table=table, stored=stored, advance=progress.advance)
    if activate:
        write_live(out / result.target.model, result.target.version)
    show_build(result, json)


def compact(
    builds: Annotated[Path, typer.Argument(help="Directory of built versions: what build's --out was.")],
    out: OutOption,
    version: Annotated[int, typer.Option(min=1, help="The delta to make a base of, with all it stands on.")],
    model: Annotated[str | None, typer.Option(help="Model; default: the only one there.")] = None,
    as_version: Annotated[int | None, typer.Option(min=1, help="Number of the base; default: the same.")] = None,
    json: JsonOption = False,
) -> None:
    """Make one base of a chain of built versions: what lookups answered from the chain, they answer from it.

    Example: `elasticctr cube compact builds --version 9 --out compacted`
    """
    from elasticctr.cube.build.compact import compact as compact_chain

    show_build(compact_chain(builds, model, version, out, as_version), json)


def show_build(result: BuildResult, json: bool) -> None:
    if json:
        print_json(_as_dict(result))
        return
    target = result.target
    over = f" over version {target.parent}" if target.parent else ""
    print_pairs(
        [
            ("built", str(result.directory)),
            ("version", f"{target.model} {target.version}, {target.kind}{over}, {result.shards} shards"),
            ("tables", ", ".join(result.tables)),
            ("rows", f"{result.rows:,}" + (f", {result.tombstones:,} tombstones" if result.tombstones else "")),
            ("duplicates", f"{result.duplicates:,}"),
            ("bytes", f"{result.bytes:,}, {result.overhead_bytes_per_key:.1f} per key beside the row"),
            ("speed", f"{result.rows_s:,.0f} rows/s, {result.mb_s:,.0f} MB/s, {result.seconds:.1f} s"),
        ]
    )


def _as_dict(result: BuildResult) -> dict[str, Any]:
    return {
        "directory": str(result.directory),
        "model": result.target.model,
        "version": result.target.version,
        "kind": result.target.kind,
        "parent": result.target.parent,
        "shards": result.shards,
        "tables": list(result.tables),
        "rows": result.rows,
        "tombstones": result.tombstones,
        "duplicates": result.duplicates,
        "bytes": result.bytes,
        "overhead_bytes_per_key": result.overhead_bytes_per_key,
        "spilled_bytes": result.spilled_bytes,
        "seconds": result.seconds,
        "rows_s": result.rows_s,
        "mb_s": result.mb_s,
    }
