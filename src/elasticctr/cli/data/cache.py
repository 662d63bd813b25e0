"""`elasticctr data cache`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.data.inspect import read_schema
from elasticctr.cli.output import JsonOption, print_json, print_pairs, print_table
from elasticctr.config import parse_settings
from elasticctr.data.cache import Cache, build_cache, is_cache
from elasticctr.data.inspection import open_log
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import AlreadyExists
from elasticctr.obs.progress import Progress


def cache(
    location: Annotated[str, typer.Argument(help="File, directory, glob, date tree or URL to read.")],
    out: Annotated[Path, typer.Argument(help="Folder to keep the parsed samples in.")],
    schema: Annotated[Path | None, typer.Option(help="schema.yaml; default: guessed from the first lines.")] = None,
    start: Annotated[str | None, typer.Option(help="First day or hour of a date tree.")] = None,
    end: Annotated[str | None, typer.Option(help="Last day or hour of a date tree.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first bad line; default: leave it out.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a cache that is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Parse a log once and keep its samples memory-mapped, so that training and later epochs skip parsing.

    The folder is a location like any other: `elasticctr data inspect OUT`, or `path: OUT` in a job file. It belongs to
    its schema; another schema is refused.

    Example: `elasticctr data cache train.txt train.cache --schema schema.yaml`
    """
    if is_cache(str(out)) and not overwrite:
        raise AlreadyExists(f"{out}: holds a cache already; choose another folder or add --overwrite")
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
        print_table("Bad lines, left out", ("where and why",), [(line,) for line in manifest.examples])
