"""`elasticctr data synth`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from elasticctr.cli.options.reading import OverwriteOption
from elasticctr.cli.options.settings import default_of, setting
from elasticctr.cli.output import JsonOption, print_json, print_pairs
from elasticctr.config import load_yaml, parse_settings
from elasticctr.data.schema import Format, Schema
from elasticctr.data.synth import (
    Shape,
    SynthLabel,
    SynthReport,
    SynthSpec,
    avazu_spec,
    conversions_spec,
    criteo_spec,
    history_spec,
    schema_spec,
    write_log,
)
from elasticctr.errors import ConfigError
from elasticctr.obs.progress import Progress

_MIXED_CARDINALITY = 10_000


def synth(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory to write to.")],
    rows: Annotated[int, typer.Option(help="Number of samples.", min=1)] = 100_000,
    shape: Annotated[
        str, typer.Option(help="criteo, avazu, history, conversions, or the path of a schema.yaml.")
    ] = "criteo",
    format: Annotated[Format | None, typer.Option(help="File format; default: slot, or the schema's own.")] = None,
    files: Annotated[int, typer.Option(help="Number of files, per directory with --dates.", min=1, max=100_000)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the hidden model and the rows.", min=0)] = 0,
    slots: Annotated[int | None, typer.Option(help="Sparse slots of shape criteo; default: 26.", min=0)] = None,
    dense: Annotated[int | None, typer.Option(help="Dense values of shape criteo; default: 13.", min=0)] = None,
    cardinality: Annotated[
        int | None, typer.Option(help="Distinct values per slot; default: the shape's.", min=1)
    ] = None,
    max_cardinality: Annotated[
        int | None, typer.Option(help="Upper limit on every slot's distinct values.", min=1)
    ] = None,
    zipf: Annotated[float, setting(SynthSpec, "zipf")] = default_of(SynthSpec, "zipf"),
    ctr: Annotated[float | None, typer.Option(help="Share of clicks; default: 0.25, avazu 0.17.")] = None,
    conversion: Annotated[float, setting(SynthSpec, "conversion")] = default_of(SynthSpec, "conversion"),
    auc: Annotated[float, setting(SynthSpec, "auc")] = default_of(SynthSpec, "auc"),
    missing: Annotated[float, setting(SynthSpec, "missing")] = default_of(SynthSpec, "missing"),
    multi: Annotated[int | None, typer.Option(help="How many of the last slots are multi-valued.", min=0)] = None,
    values: Annotated[
        float | None, typer.Option(help="Mean number of values of a multi-valued slot; default: 3, history 10.")
    ] = None,
    interactions: Annotated[
        int | None,
        typer.Option(help="Pairs of slots that interact; default: 4, history and conversions 0.", min=0),
    ] = None,
    id_space: Annotated[int, setting(SynthSpec, "id_space")] = default_of(SynthSpec, "id_space"),
    dates: Annotated[
        str | None, typer.Option(metavar="FIRST..LAST", help="Write a directory per day: 20260101..20260103.")
    ] = None,
    hours: Annotated[
        bool, typer.Option("--hours", help="With --dates: write a directory per hour within each day.")
    ] = False,
    compress: Annotated[Literal["none", "gz", "zst"], typer.Option(help="Compression of text files.")] = "none",
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Generate a synthetic click log whose best attainable AUC is known.

    A hidden model draws the clicks. Writes the part files, the `schema.yaml` to read them with, and `truth.json` with
    the best attainable AUC and logloss. Row *i* depends only on the settings and the seed, not on the number of rows
    or files.

    Example: `elasticctr data synth clicks --rows 1000000 --files 4 --seed 7`
    """
    spec = _spec(shape, format, slots, dense, cardinality)
    count = len(spec.cardinalities)
    changes: dict[str, object] = {
        "cardinalities": tuple(min(c, max_cardinality or c) for c in spec.cardinalities),
        "multi": spec.multi if multi is None else tuple(i >= count - multi for i in range(count)),
        "ctr": spec.ctr if ctr is None else ctr,
        "conversion": conversion,
        "zipf": zipf,
        "auc": auc,
        "missing": missing,
        "values_mean": spec.values_mean if values is None else values,
        "interactions": spec.interactions if interactions is None else interactions,
        "id_space": id_space,
        "seed": seed,
    }
    spec = parse_settings(
        SynthSpec, {**{name: getattr(spec, name) for name in SynthSpec.model_fields}, **changes}, "data synth"
    )
    if hours and dates is None:
        raise ConfigError("--hours needs --dates, for example --dates 20260101..20260102")
    with Progress("synth", total=rows) as progress:
        report = write_log(
            spec,
            out,
            rows,
            files=files,
            compress="" if compress == "none" else f".{compress}",
            dates=_dates(dates) if dates is not None else None,
            hours=hours,
            overwrite=overwrite,
            advance=progress.advance,
        )
    if json:
        print_json(asdict(report))
    else:
        _print(report, progress.rate)


def _spec(
    shape: str, format: Format | None, slots: int | None, dense: int | None, cardinality: int | None
) -> SynthSpec:
    if shape == Shape.CRITEO:
        return criteo_spec(
            format or Format.SLOT,
            slots=26 if slots is None else slots,
            dense=13 if dense is None else dense,
            cardinalities=() if cardinality is None else (cardinality,),
        )
    if slots is not None or dense is not None:
        raise ConfigError(f"--slots and --dense go with --shape criteo; {shape} says itself what it has")
    if shape == Shape.AVAZU:
        spec = avazu_spec(format or Format.SLOT)
        return spec if cardinality is None else spec.model_copy(update={"cardinalities": (cardinality,) * 22})
    if shape in (Shape.HISTORY, Shape.CONVERSIONS):
        spec = (history_spec if shape == Shape.HISTORY else conversions_spec)(format or Format.SLOT)
        same = (cardinality or 0,) * len(spec.cardinalities)
        return spec if cardinality is None else spec.model_copy(update={"cardinalities": same})
    if not shape.endswith((".yaml", ".yml")):
        known = ", ".join(Shape)
        raise ConfigError(f"shape {shape!r} is not known; use {known} or the path of a schema.yaml")
    schema = parse_settings(Schema, load_yaml(shape), shape)
    if format is not None:
        schema = schema.model_copy(update={"format": format})
    return schema_spec(schema, cardinality or _MIXED_CARDINALITY)


def _dates(text: str) -> tuple[date, date]:
    first, _, last = text.partition("..")
    try:
        start = datetime.strptime(first, "%Y%m%d").date()
        end = datetime.strptime(last or first, "%Y%m%d").date()
    except ValueError:
        raise ConfigError(f"--dates {text!r} is not of the form 20260101..20260103") from None
    if end < start:
        raise ConfigError(f"--dates {text!r} ends before it starts")
    return start, end


def _pairs(name: str, label: SynthLabel, is_named: bool) -> list[tuple[str, str]]:
    of = f" of {name}" if is_named else ""
    auc = "none: all labels are equal" if label.auc is None else f"{label.auc:.5f}"
    rate = f"share{of}" if is_named else "CTR"
    return [
        (rate, f"{label.ctr:.5f}"),
        (f"best attainable AUC{of}", auc),
        (f"best attainable logloss{of}", f"{label.logloss:.5f}"),
    ]


def _print(report: SynthReport, rate: float) -> None:
    print_pairs(
        [
            (
                "written",
                f"{report.rows:,} samples, {report.bytes:,} bytes, {len(report.files):,} files in {report.out}",
            ),
            ("speed", f"{rate:,.0f} samples/s"),
            *(pair for name, label in report.labels.items() for pair in _pairs(name, label, len(report.labels) > 1)),
            ("schema", str(Path(report.out) / "schema.yaml")),
        ]
    )
