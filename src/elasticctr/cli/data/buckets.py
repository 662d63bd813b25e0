"""`elasticctr data buckets`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.config import load_yaml, parse_settings
from elasticctr.data.dataset import Dataset
from elasticctr.data.formats.writers import save_schema
from elasticctr.data.quantile_edges import find_edges, raw_schema
from elasticctr.data.schema import BucketSlot, Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import ConfigError
from elasticctr.obs import console
from elasticctr.obs.progress import Progress


def buckets(
    location: Annotated[str, typer.Argument(help="File, directory, glob, date tree or URL to read.")],
    schema: Annotated[Path, typer.Option(help="schema.yaml with slots of kind: bucket, by: quantile.")],
    out: Annotated[Path | None, typer.Option(help="Where the filled schema goes; default: back to --schema.")] = None,
    start: Annotated[str | None, typer.Option(help="First day or hour of a date tree.")] = None,
    end: Annotated[str | None, typer.Option(help="Last day or hour of a date tree.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file given to --out.")] = False,
    json: JsonOption = False,
) -> None:
    """Fill in the edges of buckets by quantile, so that the schema says everything training and serving need.

    One pass over the log. Edges are exact up to 1,048,576 numbers and off by less than 0.27 % of the samples beyond.

    Example: `elasticctr data buckets train.csv --schema schema.yaml`
    """
    given = parse_settings(Schema, load_yaml(schema), str(schema))
    if not any(isinstance(slot, BucketSlot) and slot.by == "quantile" for slot in given.derived):
        raise ConfigError(f"{schema}: has no slot of kind: bucket that goes by: quantile; there is nothing to fill in")
    options = parse_settings(ReadOptions, {"start": start, "end": end}, "data buckets")
    dataset = Dataset(location, raw_schema(given), options, require_label=False)
    with Progress("buckets") as progress, dataset.iterate(16384) as batches:
        filled = find_edges(given, batches, progress.advance)
    save_schema(filled, out or schema, overwrite or out is None)
    made = [slot for slot in filled.derived if isinstance(slot, BucketSlot) and slot.by == "quantile"]
    if json:
        print_json({"schema": str(out or schema), "edges": {slot.name: list(slot.edges) for slot in made}})
        return
    first = [", ".join(f"{edge:g}" for edge in slot.edges[:6]) for slot in made]
    rows = [[slot.name, slot.of, str(len(slot.edges) + 1), edges] for slot, edges in zip(made, first, strict=True)]
    print_table("Buckets by quantile", ["slot", "of", "buckets", "first edges"], rows)
    console.note(f"schema saved to {out or schema}")
