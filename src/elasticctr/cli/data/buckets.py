"""`elasticctr data buckets`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.reading import EndOption, LocationArgument, OverwriteOption, StartOption
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
    location: LocationArgument,
    schema: Annotated[Path, typer.Option(help="schema.yaml with slots of `kind: bucket` and `by: quantile`.")],
    out: Annotated[Path | None, typer.Option(help="File for the completed schema; default: --schema itself.")] = None,
    start: StartOption = None,
    end: EndOption = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Compute the edges of quantile buckets and write them to the schema.

    Reads the log once. Edges are exact for up to 1,048,576 values; beyond that, an edge is off by less than 0.27 % of
    the samples.

    Example: `elasticctr data buckets train.csv --schema schema.yaml`
    """
    given = parse_settings(Schema, load_yaml(schema), str(schema))
    if not any(isinstance(slot, BucketSlot) and slot.by == "quantile" for slot in given.derived):
        raise ConfigError(f"{schema}: has no slot of kind: bucket with by: quantile, so there is nothing to compute")
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
