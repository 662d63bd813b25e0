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

OutOption = Annotated[Path, typer.Option("--out", help="Directory to write MODEL/VERSION/ into.")]


def build(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Published version (REPO/MODEL/VERSION, or REPO/MODEL for the live one), or files in SequenceFile, "
            "Parquet, Arrow or text format (file, glob or directory).",
        ),
    ],
    out: OutOption,
    shards: Annotated[int, typer.Option(min=1, max=4096, help="Number of shards.")] = 1,
    sharding: Annotated[
        Sharding, typer.Option(help="How feasigns map to shards; modulo suits clients of PaddlePaddle's Cube.")
    ] = "buckets",
    encoding: Annotated[
        Encoding | None, typer.Option(help="Encoding of the rows; default: that of the source.")
    ] = None,
    stored: Annotated[
        str | None,
        typer.Option(help="For files: encoding of their binary values: fp32 (default), fp16, int8, raw or min_max."),
    ] = None,
    memory: Annotated[
        str, typer.Option(help="Memory for rows; larger tables are built through temporary files.")
    ] = "1GiB",
    model: Annotated[str | None, typer.Option(help="Model; required for files.")] = None,
    table: Annotated[str, typer.Option(help="For files: name of the table.")] = "embedding",
    version: Annotated[
        int | None,
        typer.Option(min=1, help="Version number; default: the live one, or for files the next free number."),
    ] = None,
    parent: Annotated[int, typer.Option(min=0, help="For files: the version this delta is based on; 0: a base.")] = 0,
    whole: Annotated[
        bool, typer.Option("--whole", help="For a published delta: build its whole chain as a base.")
    ] = False,
    activate: Annotated[
        bool,
        typer.Option(
            "--activate", help="Write LIVE so that a server of this directory serves the version; for one shard only."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Build the index files that Cube servers open.

    Writes one file per table and shard; they appear once all are complete. Rows of a published version are verified
    against its manifest. If a feasign occurs twice, its last row wins.

    Example: `elasticctr cube build repo/ctr/7 --out builds --shards 2`
    """
    # Imports pyarrow, which --help does without.
    from elasticctr.cube.build.builder import BuildOptions, Target
    from elasticctr.cube.build.builds import build_files, build_version, find_version, next_version

    if activate and shards != 1:
        raise ConfigError("--activate is for one shard; with more, each server has its own directory and LIVE file")
    options = BuildOptions(shards, sharding, encoding, parse_size(memory))
    found = find_version(source, model, version)
    with Progress("build", unit="rows") as progress:
        if found is not None:
            result = build_version(*found, out, options, whole=whole, advance=progress.advance)
        else:
            if model is None:
                raise ConfigError(f"{source} is not a published version; name the model of its rows with --model")
            target = Target(model, version or next_version(out, model), parent)
            result = build_files(source, out, target, options, table=table, stored=stored, advance=progress.advance)
    if activate:
        write_live(out / result.target.model, result.target.version)
    show_build(result, json)


def compact(
    builds: Annotated[
        Path, typer.Argument(metavar="BUILDS", help="Directory of built versions (--out of `cube build`).")
    ],
    out: OutOption,
    version: Annotated[int, typer.Option(min=1, help="Delta whose chain is merged.")],
    model: Annotated[str | None, typer.Option(help="Model; default: the only one in BUILDS.")] = None,
    as_version: Annotated[
        int | None, typer.Option(min=1, help="Version number of the new base; default: that of the delta.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Merge a chain of built versions into one base.

    Lookups in the base return the same rows as lookups in the chain.

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
