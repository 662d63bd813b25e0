"""`elasticctr data inspect`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticctr.cli.options.reading import EndOption, LocationArgument, OverwriteOption, SchemaOption, StartOption
from elasticctr.cli.output import JsonOption, print_json, print_pairs, print_table
from elasticctr.config import load_yaml, parse_settings
from elasticctr.data.formats.writers import save_schema, schema_yaml
from elasticctr.data.inspection import LogInspection, inspect_log
from elasticctr.data.inspection.summary import QUANTILES, SparseSummary
from elasticctr.data.schema import Format, Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.obs import console
from elasticctr.obs.progress import Progress


def inspect(
    location: LocationArgument,
    schema: SchemaOption = None,
    format: Annotated[
        Format | None, typer.Option(help="Format of the files; default: the schema's, else guessed.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Stop after this many samples.", min=1)] = None,
    top: Annotated[int, typer.Option(help="Most frequent values to show per slot.", min=0, max=1000)] = 3,
    start: StartOption = None,
    end: EndOption = None,
    out: Annotated[Path | None, typer.Option(help="File (YAML) to write the schema to.")] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Show a log's format, slots, cardinalities, click-through rate and bad lines.

    Without `--schema`, the format and the schema are guessed; `--out` saves the guess for training. Memory use is
    bounded: cardinalities are exact up to 16,384 distinct values and accurate to about 1 % beyond.

    Example: `elasticctr data inspect clicks/part-00000.txt --out schema.yaml`
    """
    given = read_schema(schema)
    options = parse_settings(ReadOptions, {"start": start, "end": end}, "data inspect")
    with Progress("inspect", total=rows) as progress:
        found = inspect_log(location, given, format, rows, top, options, progress.advance)
    if out is not None:
        save_schema(found.schema, out, overwrite)
    if json:
        print_json(_as_json(found))
        return
    _print(found, is_guess=given is None)
    if out is not None:
        console.note(f"schema saved to {out}")


def read_schema(path: Path | None) -> Schema | None:
    return None if path is None else parse_settings(Schema, load_yaml(path), str(path))


def _as_json(found: LogInspection) -> dict[str, Any]:
    result = asdict(found)
    result["schema"] = found.schema.model_dump(mode="json")
    result["format"] = str(found.schema.format)
    result["bytes_per_row"] = found.bytes_per_row
    result["quantiles"] = QUANTILES
    for slot in result["sparse"]:
        for value in slot["top"]:
            # Most JSON readers keep numbers as doubles, which cannot hold a feasign.
            value["value"] = str(value["value"])
    return result


def _print(found: LogInspection, is_guess: bool) -> None:
    size = found.bytes_per_row
    limit = "" if found.is_complete else " (stopped at --rows)"
    print_pairs(
        [
            ("location", f"{found.location}, {len(found.files):,} files"),
            ("format", f"{found.schema.format}" + (f" (guessed: {'; '.join(found.notes)})" if is_guess else "")),
            ("samples", f"{found.rows:,}{limit}"),
            ("bad lines", f"{found.bad:,} of {found.lines:,}"),
            ("bytes per sample", "unknown" if size is None else f"{size:,.1f}"),
            *((f"CTR ({x.name})", f"{x.mean:.5f}  [{x.low:.5f}, {x.high:.5f}]") for x in found.labels),
        ]
    )
    if found.bad_lines:
        print_table("Bad lines", ("where and why",), [(line,) for line in found.bad_lines])
    if found.sparse:
        columns = ("slot", "#coverage", "#different", "#fewest", "#mean", "#most")
        print_table("Sparse slots", columns, [_sparse_row(slot) for slot in found.sparse])
    if found.dense:
        quantiles = [f"#{q:.0%}" for q in QUANTILES]
        dense_columns = ("dense", "#min", *quantiles, "#max", "#mean", "#zeros")
        rows = [
            (
                f"{d.name}.{d.dimension}",
                f"{d.min:.4g}",
                *(f"{q:.4g}" for q in d.quantiles),
                f"{d.max:.4g}",
                f"{d.mean:.4g}",
                f"{d.zeros:.1%}",
            )
            for d in found.dense
        ]
        print_table("Dense slots, after their transforms", dense_columns, rows)
    _print_top(found)
    if is_guess:
        console.stdout().print("\n# Guessed schema; save it with --out schema.yaml", markup=False)
        console.stdout().print(schema_yaml(found.schema), markup=False, soft_wrap=True, end="")


def _sparse_row(slot: SparseSummary) -> tuple[str, ...]:
    different = f"{slot.distinct:,}" if slot.distinct_is_exact else f"~{slot.distinct:,}"
    return slot.name, f"{slot.coverage:.1%}", different, str(slot.fewest), f"{slot.mean:.2f}", str(slot.most)


def _print_top(found: LogInspection) -> None:
    rows = [
        (
            slot.name,
            str(v.value),
            f"{v.shows:,}" if not slot.missed else f">= {v.shows:,}",
            f"{v.ctr:.4f}",
            f"{v.low:.4f}..{v.high:.4f}",
        )
        for slot in found.sparse
        for v in slot.top
    ]
    if rows:
        print_table("CTR of the most frequent values", ("slot", "feasign", "#samples", "#CTR", "#95 % interval"), rows)
