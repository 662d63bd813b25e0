"""`elasticctr data vocabulary`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    location: Annotated[str, typer.Argument(help="File, directory, glob, date tree or URL: the training data.")],
    out: Annotated[Path, typer.Argument(help="File to write, for sparse.vocabulary.path of a job.")],
    schema: Annotated[Path, typer.Option(help="schema.yaml")],
    min_count: Annotated[int, typer.Option(help="Occurrences a feasign needs to get a row.", min=1)] = 2,
    start: Annotated[str | None, typer.Option(help="First day or hour of a date tree.")] = None,
    end: Annotated[str | None, typer.Option(help="Last day or hour of a date tree.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a vocabulary that is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Count the feasigns of a log and keep those frequent enough to get a row; all others share one row per slot.

    Counts are exact, over all slots of a table together, crosses and buckets too. About 32 bytes per distinct feasign
    are held in memory.

    Example: `elasticctr data vocabulary train.txt train.vocabulary --schema schema.yaml --min-count 2`
    """
    if out.exists() and not overwrite:
        raise AlreadyExists(f"{out}: exists already; choose another name or add --overwrite")
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
