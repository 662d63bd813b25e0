"""`elasticctr data convert`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.data.inspect import read_schema
from elasticctr.cli.options.reading import (
    EndOption,
    LocationArgument,
    OverwriteOption,
    SchemaOption,
    StartOption,
    StrictOption,
)
from elasticctr.cli.output import JsonOption, print_json, print_pairs, print_table
from elasticctr.config import parse_settings
from elasticctr.data.convert import convert_log
from elasticctr.data.schema import Format
from elasticctr.data.settings import ReadOptions
from elasticctr.obs import console
from elasticctr.obs.progress import Progress


def convert(
    location: LocationArgument,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="File to write; names ending in .gz or .zst are compressed.")
    ],
    from_: Annotated[Format | None, typer.Option("--from", help="Format to read; default: guessed.")] = None,
    to: Annotated[Format | None, typer.Option("--to", help="Format to write; default: from the name of OUT.")] = None,
    schema: SchemaOption = None,
    merge_slots: Annotated[
        bool, typer.Option("--merge-slots", help="Merge all sparse slots into one, as libsvm requires.")
    ] = False,
    strict: StrictOption = False,
    schema_out: Annotated[
        Path | None, typer.Option(help="File for the schema of OUT; default: OUT with the suffix .schema.yaml.")
    ] = None,
    start: StartOption = None,
    end: EndOption = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Rewrite a log in another format.

    OUT appears once it is complete, together with a schema to read it. Feasigns are kept bit for bit. Strings become
    feasigns, which cannot be undone, and dense values are written after their transforms. Anything the target format
    cannot hold is refused or reported in a warning.

    Example: `elasticctr data convert train.txt train.parquet --schema schema.yaml`
    """
    options = parse_settings(ReadOptions, {"start": start, "end": end}, "data convert")
    given = read_schema(schema)
    with Progress("convert") as progress:
        result = convert_log(
            location,
            out,
            to=to,
            schema=given,
            format=from_,
            merge=merge_slots,
            strict=strict,
            overwrite=overwrite,
            schema_path=schema_out,
            options=options,
            advance=progress.advance,
        )
    for warning in result.warnings:
        console.warn(warning)
    if json:
        print_json(asdict(result))
        return
    print_pairs(
        [
            ("written", f"{result.rows:,} samples, {result.bytes:,} bytes to {result.out}"),
            ("format", f"{result.from_format} to {result.to_format}"),
            ("bad lines", f"{result.bad:,} of {result.lines:,}"),
            ("schema", result.schema_path),
        ]
    )
    if result.bad_lines:
        print_table("Bad lines, skipped", ("where and why",), [(line,) for line in result.bad_lines])
