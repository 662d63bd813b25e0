"""`elasticctr data vocabulary`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.reading import EndOption, LocationArgument, OverwriteOption, StartOption
from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.config import load_yaml, parse_settings
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.data.vocabulary import count_vocabulary
from elasticctr.errors import AlreadyExists
from elasticctr.obs import console
from elasticctr.obs.progress import Progress


def vocabulary(
    location: LocationArgument,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="File to write; name it in `sparse.vocabulary.path` of a job.")
    ],
    schema: Annotated[Path, typer.Option(help="schema.yaml of the log.")],
    min_count: Annotated[int, typer.Option(help="Occurrences a feasign needs to get a row.", min=1)] = 2,
    start: StartOption = None,
    end: EndOption = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Count feasigns and keep the frequent ones as a vocabulary.

    A job with this vocabulary gives these feasigns rows of their own; all others share one row per slot. Counts are
    exact and cover all slots of a table together, including crosses and buckets. Needs about 32 bytes of memory per
    distinct feasign.

    Example: `elasticctr data vocabulary train.txt train.vocabulary --schema schema.yaml --min-count 2`
    """
    if out.exists() and not overwrite:
        raise AlreadyExists(f"{out}: already exists; choose another name or add --overwrite")
    given = parse_settings(Schema, load_yaml(schema), str(schema))
    options = parse_settings(ReadOptions, {"start": start, "end": end}, "data vocabulary")
    dataset = Dataset(location, given, options, require_label=False)
    with Progress("vocabulary") as progress, dataset.iterate(16384) as batches:
        made = count_vocabulary(given, batches, min_count, progress.advance)
    made.save(out, overwrite)
    if json:
        tables = {name: {"feasigns": len(kept), "distinct": made.distinct[name]} for name, kept in made.tables.items()}
        print_json({"out": str(out), "min_count": min_count, "samples": made.samples, "tables": tables})
        return
    rows = [[name, f"{len(kept):,}", f"{made.distinct[name]:,}"] for name, kept in made.tables.items()]
    print_table(f"Feasigns seen {min_count} times or more", ["table", "feasigns", "of"], rows)
    console.note(f"vocabulary of {made.samples:,} samples saved to {out}")
