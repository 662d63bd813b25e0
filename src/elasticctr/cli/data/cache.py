"""`elasticctr data cache`."""

from __future__ import annotations

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
from elasticctr.data.cache import Cache, build_cache, is_cache
from elasticctr.data.inspection import open_log
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import AlreadyExists
from elasticctr.obs.progress import Progress


def cache(
    location: LocationArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory for the parsed samples.")],
    schema: SchemaOption = None,
    start: StartOption = None,
    end: EndOption = None,
    strict: StrictOption = False,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Parse a log once and keep its samples in memory-mapped files.

    OUT can be read like any other log: `elasticctr data inspect OUT`, or `path: OUT` in a job file. It can only be
    read with the schema it was built with.

    Example: `elasticctr data cache train.txt train.cache --schema schema.yaml`
    """
    if is_cache(str(out)) and not overwrite:
        raise AlreadyExists(f"{out}: already holds a cache; choose another directory or add --overwrite")
    options = parse_settings(
        ReadOptions, {"start": start, "end": end, "on_bad": "fail" if strict else "skip"}, "data cache"
    )
    log = open_log(location, read_schema(schema), None, options)
    with Progress("cache") as progress:
        made = build_cache(out, log.sources, log.schema, options, advance=progress.advance)
    _print(made, json)


def _print(made: Cache, as_json: bool) -> None:
    manifest = made.manifest
    if as_json:
        result = manifest.model_dump(
            mode="json", include={"fingerprint", "lines", "samples", "bad", "examples", "size"}
        )
        print_json({"out": str(made.directory), **result})
        return
    print_pairs(
        [
            ("written", f"{manifest.samples:,} samples, {manifest.size:,} bytes to {made.directory}"),
            ("bad lines", f"{manifest.bad:,} of {manifest.lines:,}"),
            ("schema", manifest.fingerprint),
        ]
    )
    if manifest.examples:
        print_table("Bad lines, skipped", ("where and why",), [(line,) for line in manifest.examples])
