"""Guesses at the columns of CSV and Parquet files: which is the label, which are numbers, which are ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from elasticctr.data.schema import DenseSlot, Format, Schema, Slot, SparseSlot
from elasticctr.errors import DataError

LABEL_NAMES = ("click", "label", "clicked", "is_click", "ctr", "y", "target", "conversion")
_MISSING = {"", "NA", "NaN", "null"}
_INTEGER = re.compile(r"[-+]?\d+\Z")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\Z")
_COUNT_NAME = re.compile(r"I\d+\Z|.*(price|count|num|score|rate|age|dense).*", re.IGNORECASE)
_SEPARATORS = "|;^ "


def most(claims: Iterable[object]) -> bool:
    """Whether nearly all are true: a log may have a few bad lines."""
    truths = [bool(claim) for claim in claims]
    return bool(truths) and sum(truths) * 20 >= len(truths) * 19


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    cells: Sequence[str]

    @property
    def present(self) -> list[str]:
        return [cell for cell in self.cells if cell not in _MISSING]


def find_label(columns: Sequence[Column]) -> str | None:
    binary = [c.name for c in columns if most(cell in ("0", "1", "0.0", "1.0") for cell in c.cells)]
    named = [name for name in LABEL_NAMES if name in binary]
    return named[0] if named else binary[0] if binary else None


def column_slots(columns: Sequence[Column]) -> list[Slot]:
    return [_column_slot(column) for column in columns]


def _column_slot(column: Column) -> Slot:
    present = column.present
    if most(map(_INTEGER.match, present)):
        if _COUNT_NAME.match(column.name) or any(cell.startswith("-") for cell in present):
            return DenseSlot(name=column.name, transform="log1p")
        return SparseSlot(name=column.name, values="id")
    if most(map(_NUMBER.match, present)):
        return DenseSlot(name=column.name)
    separator = _separator(present)
    parts = [part for cell in present for part in (cell.split(separator) if separator else [cell])]
    are_ids = most(part.isascii() and part.isdigit() for part in parts)
    return SparseSlot(name=column.name, values="id" if are_ids else "string", separator=separator)


def _separator(cells: Sequence[str]) -> str | None:
    for separator in _SEPARATORS:
        if sum(separator in cell for cell in cells) * 20 > len(cells):
            return separator
    return None


def guess_parquet(table: pa.Table, path: str) -> Schema:
    """From the columns of a Parquet file and its first rows."""
    label, slots = None, []
    names = list(table.column_names)
    binary = [n for n in names if _is_binary(table[n])]
    named = [n for n in LABEL_NAMES if n in binary]
    label = named[0] if named else binary[0] if binary else None
    if label is None:
        raise DataError("no column is 0 or 1 in every row, so none can be the label; give a schema", path)
    for name in names:
        if name != label:
            slot = _arrow_slot(name, table[name])
            if slot is not None:
                slots.append(slot)
    if not slots:
        raise DataError("no column but the label can be a slot", path)
    return Schema(format=Format.PARQUET, label=(label,), slots=tuple(slots))


def _is_binary(column: pa.ChunkedArray) -> bool:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
        return False
    return set(column.to_pylist()) <= {0, 1} and len(column) > 0


def _arrow_slot(name: str, column: pa.ChunkedArray) -> Slot | None:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = kind.value_type
        if pa.types.is_floating(inner):
            sizes = {len(cell) for cell in column.to_pylist() if cell is not None}
            return DenseSlot(name=name, dim=sizes.pop()) if len(sizes) == 1 and sizes != {0} else None
        return SparseSlot(name=name, values="id" if pa.types.is_integer(inner) else "string")
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return DenseSlot(name=name)
    if pa.types.is_integer(kind):
        if _COUNT_NAME.match(name):
            return DenseSlot(name=name, transform="log1p")
        return SparseSlot(name=name, values="id")
    if (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_dictionary(kind)
        or pa.types.is_boolean(kind)
    ):
        return SparseSlot(name=name, values="string")
    return None
