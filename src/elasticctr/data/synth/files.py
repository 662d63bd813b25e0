"""Writes a synthetic log as files, with `schema.yaml` to read it and `truth.json`, the figures a model can attain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np

from elasticctr.data.batch import Batch
from elasticctr.data.formats.writers import Writer, merge_slots, open_writer, save_schema
from elasticctr.data.schema import Format, Schema
from elasticctr.data.synth.attainable import Attainable
from elasticctr.data.synth.rows import Generator, SynthSamples
from elasticctr.data.synth.spec import SynthSpec
from elasticctr.errors import AlreadyExists, ConfigError
from elasticctr.storage.atomic import atomic_file

SUFFIXES = {Format.CSV: ".csv", Format.PARQUET: ".parquet"}


@dataclass(frozen=True, slots=True)
class SynthLabel:
    ctr: float
    auc: float | None
    logloss: float


@dataclass(frozen=True, slots=True)
class SynthFile:
    path: str
    rows: int
    ctr: float
    auc: float | None
    logloss: float
    labels: dict[str, SynthLabel]


@dataclass(frozen=True, slots=True)
class SynthReport:
    """`auc` and `logloss` are those of the true probabilities: the best attainable on these rows. Of several labels
    they are the first's; `labels` has all.
    """

    out: str
    format: str
    rows: int
    seed: int
    ctr: float
    auc: float | None
    logloss: float
    bytes: int
    files: tuple[SynthFile, ...]
    labels: dict[str, SynthLabel]


def write_log(
    spec: SynthSpec,
    out: Path,
    rows: int,
    files: int = 1,
    compress: str = "",
    dates: tuple[date, date] | None = None,
    hours: bool = False,
    overwrite: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
) -> SynthReport:
    """Row i is the same in any number of files. `dates`: one folder per day, and per hour within it, with donefiles."""
    _check(spec.schema_, out, rows, files, overwrite)
    generator = Generator(spec)
    folders = list(_folders(dates, hours))
    bounds = [rows * i // (len(folders) * files) for i in range(len(folders) * files + 1)]
    labels = spec.schema_.label
    whole, written, size = [Attainable() for _ in labels], [], 0
    suffix = SUFFIXES.get(spec.schema_.format, ".txt") + compress
    for i, (first, last) in enumerate(pairwise(bounds)):
        path = out / folders[i // files] / f"part-{i % files:05d}{suffix}"
        parts = [Attainable() for _ in labels]
        with open_writer(path, spec.written_schema, () if spec.is_merged else spec.hex_slots, overwrite) as writer:
            _write_rows(generator, writer, first, last - first, parts, advance)
        for attainable, part in zip(whole, parts, strict=True):
            attainable.merge(part)
        part = parts[0]
        written.append(
            SynthFile(str(path.relative_to(out)), part.rows, part.ctr, part.auc, part.logloss, _by_label(labels, parts))
        )
        size += path.stat().st_size
        if dates is not None and i % files == files - 1:
            (path.parent / "donefile").touch()
    report = SynthReport(
        str(out),
        str(spec.schema_.format),
        whole[0].rows,
        spec.seed,
        whole[0].ctr,
        whole[0].auc,
        whole[0].logloss,
        size,
        tuple(written),
        _by_label(labels, whole),
    )
    save_schema(spec.written_schema, out / "schema.yaml", overwrite)
    with atomic_file(out / "truth.json", overwrite=overwrite) as stream:
        stream.write(json.dumps({**asdict(report), "settings": _settings(spec)}, indent=2).encode() + b"\n")
    return report


def _by_label(labels: Sequence[str], found: Sequence[Attainable]) -> dict[str, SynthLabel]:
    return {label: SynthLabel(of.ctr, of.auc, of.logloss) for label, of in zip(labels, found, strict=True)}


def _write_rows(
    generator: Generator,
    writer: Writer,
    first: int,
    count: int,
    parts: list[Attainable],
    advance: Callable[[int], None],
) -> None:
    # Formatting text and drawing the next rows take about as long, so they go side by side.
    pending: Future[None] | None = None
    with ThreadPoolExecutor(1) as pool:
        for rows in generator.rows(count, first):
            if pending is not None:
                pending.result()
            pending = pool.submit(writer.write, _written(generator.spec, rows))
            for k, part in enumerate(parts):
                part.add(rows.logits[k], rows.batch.labels[:, k])
            advance(len(rows.batch))
        if pending is not None:
            pending.result()


def _written(spec: SynthSpec, rows: SynthSamples) -> Batch:
    """The samples as the format holds them: a missing dense value is left out where it can be, else made neutral."""
    batch, dense, schema = rows.batch, rows.batch.dense, spec.written_schema
    has_gaps = schema.format in (Format.CRITEO, Format.PARQUET) or (
        schema.format is Format.CSV and all(slot.dim == 1 for slot in schema.dense)
    )
    if spec.transformed:
        dense = np.round(np.log1p(np.nan_to_num(dense, nan=0.0)), 4).astype(np.float32)
    elif not has_gaps:
        neutral = [m for slot in schema.dense for m in (slot.min or (0.0,) * slot.dim)]
        dense = np.where(np.isnan(dense), np.asarray(neutral, dtype=np.float32), dense)
    ready = Batch(spec.schema_, batch.labels, dense, batch.values, batch.offsets, batch.weights, batch.shows)
    return merge_slots(ready, schema) if spec.is_merged else ready


def _folders(dates: tuple[date, date] | None, hours: bool) -> Iterator[str]:
    if dates is None:
        yield ""
        return
    day = dates[0]
    while day <= dates[1]:
        yield from (f"{day:%Y%m%d}/{hour:02d}" for hour in range(24)) if hours else (f"{day:%Y%m%d}",)
        day += timedelta(days=1)


def _check(schema: Schema, out: Path, rows: int, files: int, overwrite: bool) -> None:
    if rows < 1 or files < 1:
        given = f"{rows:,} and {files:,}"
        raise ConfigError(f"a log has at least one sample and one file, not {given}; raise --rows or --files")
    if out.is_file():
        raise ConfigError(f"{out}: is a file; give a folder to write into")
    if not overwrite and any((out / name).exists() for name in ("schema.yaml", "truth.json")):
        raise AlreadyExists(f"{out}: holds a log already; choose another folder or add --overwrite")
    if schema.format is Format.FEASIGN and schema.dense:
        raise ConfigError(f"the {schema.format} format has no place for dense slots; add --dense 0")


def _settings(spec: SynthSpec) -> dict[str, object]:
    return spec.model_dump(mode="json", exclude={"schema_"})
