"""`elasticctr data convert`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.data.inspect import SchemaOption, read_schema
from elasticctr.cli.output import JsonOption, print_json, print_pairs, print_table
from elasticctr.config import parse_settings
from elasticctr.data.convert import convert_log
from elasticctr.data.schema import Format
from elasticctr.data.settings import ReadOptions
from elasticctr.obs import console
from elasticctr.obs.progress import Progress


def convert(
    location: Annotated[str, typer.Argument(help="File, directory, glob, date tree or URL to read.")],
    out: Annotated[Path, typer.Argument(help="File to write; a name in .gz or .zst is compressed.")],
    from_: Annotated[Format | None, typer.Option("--from", help="Format to read; default: guessed.")] = None,
    to: Annotated[Format | None, typer.Option(help="Format to write; default: by the name of OUT.")] = None,
    schema: SchemaOption = None,
    merge_slots: Annotated[
        bool, typer.Option("--merge-slots", help="Put all sparse slots into one, which libsvm needs.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first bad line; default: leave it out.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="Where to write the schema of OUT; default: OUT's name in .schema.yaml.")
    ] = None,
    start: Annotated[str | None, typer.Option(help="First day or hour of a date tree.")] = None,
    end: Annotated[str | None, typer.Option(help="Last day or hour of a date tree.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT and its schema.")] = False,
    json: JsonOption = False,
) -> None:
    """Rewrite a log in another format. OUT appears when it is complete, with a schema to read it beside it.

    Feasigns are kept bit for bit. Strings become feasigns, which cannot be undone, and dense values are written after
    their transforms. What the target cannot hold is refused or named in a warning.

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
            schema_path=save,
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
        print_table("Bad lines, left out", ("where and why",), [(line,) for line in result.bad_lines])
