"""Rewrites a log in another format, streaming, in one pass. Used by `elasticctr data convert`.

Samples keep their feasigns bit for bit. What the target cannot hold is refused before anything is written, or
named in `warnings`; nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elasticctr.data.batch import Batch
from elasticctr.data.formats.writers import VALUE_SEPARATOR, merge_slots, open_writer, save_schema
from elasticctr.data.inspection import open_log
from elasticctr.data.schema import DenseSlot, Format, Schema, Slot, SparseSlot
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import ConfigError, DataError

_EXAMPLES = 20
_SUFFIXES = {".csv": Format.CSV, ".tsv": Format.CSV, ".parquet": Format.PARQUET, ".libsvm": Format.LIBSVM}
_SUFFIXES |= {".libffm": Format.LIBFFM, ".svm": Format.LIBSVM, ".ffm": Format.LIBFFM}
# How many values the parser keeps per sample: all that fit, as a conversion must not shorten anything.
_ALL_VALUES = 1 << 20
_SHOWS_LOST = "impressions (show) of more or less than 1 are not written"


@dataclass(frozen=True, slots=True)
class LogConversion:
    out: str
    schema_path: str
    from_format: str
    to_format: str
    rows: int
    lines: int
    bad: int
    bad_lines: tuple[str, ...]
    bytes: int
    warnings: tuple[str, ...]


def convert_log(
    location: str,
    out: Path,
    to: Format | None = None,
    schema: Schema | None = None,
    format: Format | None = None,
    merge: bool = False,
    strict: bool = False,
    overwrite: bool = False,
    schema_path: Path | None = None,
    options: ReadOptions | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> LogConversion:
    """`merge`: put all slots into one, for libsvm. `strict`: a bad line is an error instead of being left out."""
    options = options or ReadOptions()
    log = open_log(location, schema, format, options)
    if log.cache is None:
        log = log.with_schema(_reading_schema(log.schema))
    target = target_schema(log.schema, to or _format_by_name(out), merge, delimiter="\t" if ".tsv" in out.name else ",")
    warnings = _warnings(log.schema, target)
    schema_path = schema_path or out.with_name(out.name.split(".")[0] + ".schema.yaml")
    rows = lines = bad = 0
    bad_lines: list[str] = []
    with open_writer(out, target, overwrite=overwrite) as writer:
        for portion in log.portions(options):
            if strict and portion.bad:
                raise DataError(portion.bad[0].reason, portion.path, portion.bad[0].line)
            lines += portion.lines
            bad += portion.bad_count
            bad_lines += [f"{portion.path}:{b.line}: {b.reason}" for b in portion.bad[: _EXAMPLES - len(bad_lines)]]
            batch = portion.rows
            if target.format is not Format.FEASIGN and _SHOWS_LOST not in warnings and np.any(batch.shows != 1):
                warnings.append(_SHOWS_LOST)
            writer.write(_as_target(batch, target))
            rows += len(batch)
            advance(len(batch))
        if not rows:
            what = f"no line is a sample of the {log.schema.format} format; the first: {bad_lines[0]}"
            raise DataError(what) if bad_lines else DataError("holds no samples", location)
    save_schema(target, schema_path, overwrite)
    return LogConversion(
        out=str(out),
        schema_path=str(schema_path),
        from_format=str(log.schema.format),
        to_format=str(target.format),
        rows=rows,
        lines=lines,
        bad=bad,
        bad_lines=tuple(bad_lines),
        bytes=out.stat().st_size,
        warnings=tuple(warnings),
    )


def target_schema(schema: Schema, format: Format, merge: bool = False, delimiter: str = ",") -> Schema:
    """The schema of `schema`'s samples once written as `format`. Refuses what the format cannot hold."""
    if format is Format.CRITEO:
        raise ConfigError("criteo lines hold strings and feasigns cannot be turned back into those; use --to slot")
    if len(schema.label) > 1 and format not in (Format.SLOT, Format.CSV, Format.PARQUET):
        raise ConfigError(f"the {format} format holds one label, the schema has {', '.join(schema.label)}")
    if schema.weight is not None and format not in (Format.SLOT, Format.CSV, Format.PARQUET):
        raise ConfigError(f"the {format} format has no place for sample weights (slot {schema.weight!r})")
    if format is Format.FEASIGN and schema.dense:
        raise ConfigError(f"the feasign format has no place for dense slots ({schema.dense[0].name!r})")
    slots: list[Slot] = [_target_slot(slot) for slot in schema.logged]
    if format is Format.LIBSVM and len(schema.sparse) > 1:
        if not merge:
            raise ConfigError(
                f"the libsvm format has one sparse slot, the schema has {len(schema.sparse)}; "
                "put them into one with --merge-slots, or use --to libffm"
            )
        slots = [slot for slot in slots if isinstance(slot, DenseSlot)]
        slots.append(SparseSlot(name="features", values="id"))
    return schema.model_copy(update={"format": format, "slots": tuple(slots), "delimiter": delimiter, "header": True})


def _target_slot(slot: SparseSlot | DenseSlot) -> SparseSlot | DenseSlot:
    if isinstance(slot, DenseSlot):
        return DenseSlot(name=slot.name, dim=slot.dim)
    return slot.model_copy(update={"values": "id", "column": None, "separator": slot.separator or VALUE_SEPARATOR})


def _reading_schema(schema: Schema) -> Schema:
    slots = [
        slot.model_copy(update={"max_values": _ALL_VALUES}) if isinstance(slot, SparseSlot) else slot
        for slot in schema.slots
    ]
    return schema.model_copy(update={"slots": tuple(slots)})


def _as_target(batch: Batch, target: Schema) -> Batch:
    if len(batch.schema.sparse) != len(target.sparse):
        return merge_slots(batch, target)
    return Batch(target, batch.labels, batch.dense, batch.values, batch.offsets, batch.weights, batch.shows)


def _warnings(schema: Schema, target: Schema) -> list[str]:
    warnings = []
    is_criteo = schema.format is Format.CRITEO
    hashed = [s.name for s in schema.sparse if s.values == "string" or (is_criteo and s.values == "auto")]
    if hashed:
        warnings.append(f"strings of {len(hashed)} slots are written as their feasigns; that cannot be undone")
    transformed = [s.name for s in schema.dense if s.transform != "none"]
    if transformed:
        names = ", ".join(transformed[:3]) + (", …" if len(transformed) > 3 else "")
        warnings.append(f"dense slots are written after their transform ({names})")
    if len(schema.sparse) != len(target.sparse):
        warnings.append(f"{len(schema.sparse)} slots are merged into one; which slot a feasign came from is lost")
    return warnings


def _format_by_name(out: Path) -> Format:
    name = out.name.removesuffix(".gz").removesuffix(".zst")
    found = _SUFFIXES.get(Path(name).suffix)
    if found is None:
        raise ConfigError(f"{out}: its name does not tell a format; name it with --to")
    return found
