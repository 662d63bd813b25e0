"""Arrow columns → samples: what CSV and Parquet rows become.

A null is an absent value: no feasigns, 0.0 after a dense slot's transform, weight 1. A row that cannot be understood is
reported with its reason and left out; it never becomes zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.data.formats.numbers import Numbers, read_ids, read_numbers
from elasticctr.data.schema import DenseSlot, Pooling, Schema, SparseSlot
from elasticctr.errors import ConfigError

Bad = dict[int, str]  # row → the first reason it is bad


def needed_columns(schema: Schema) -> list[str]:
    """Columns a file must have, in schema order."""
    names = [*schema.label, *([schema.weight] if schema.weight else []), *(s.column or s.name for s in schema.logged)]
    return list(dict.fromkeys(names))


def to_batch(
    schema: Schema, columns: Mapping[str, pa.Array], rows: int, *, is_text: bool, require_label: bool = True
) -> tuple[Batch, Bad]:
    """All rows as samples, and which of them are bad. `is_text`: cells are bytes of text, lists not yet split."""
    bad: Bad = {}
    labels = [_read_labels(columns[name], name, require_label, bad) for name in schema.label]
    weights = np.ones(rows, np.float32) if schema.weight is None else _read_weights(columns[schema.weight], bad)
    marked = schema.bucketed
    dense = [
        _read_dense(columns[slot.column or slot.name], slot, is_text, -0.0 if slot.name in marked else 0.0, bad)
        for slot in schema.dense
    ]
    bags = [
        _read_bags(columns[slot.column or slot.name], slot, schema.hash_seed, is_text, bad) for slot in schema.sparse
    ]
    values, offsets = _native.BagColumns([v for v, _ in bags], [o for _, o in bags]).slice(0, rows)
    batch = Batch(
        schema,
        np.stack(labels, axis=1),
        np.concatenate(dense, axis=1) if dense else np.zeros((rows, 0), np.float32),
        values,
        offsets,
        weights,
        np.ones(rows, np.float32),
    )
    return batch, bad


def flatten(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array without dictionaries and 64-bit offsets."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if pa.types.is_dictionary(kind):
        return flatten(array.dictionary_decode())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    if pa.types.is_large_list(kind):
        return array.cast(pa.list_(kind.value_type))
    return array


def _mark(bad: Bad, rows: NDArray[np.intp], reason: Callable[[int], str]) -> None:
    for row in rows.tolist():
        bad.setdefault(row, reason(row))


def _read_labels(array: pa.Array, name: str, is_required: bool, bad: Bad) -> NDArray[np.float32]:
    numbers = _read_cells(array, name, bad)
    labels = numbers.values.astype(np.float32)
    if is_required:
        _mark(bad, np.flatnonzero(~numbers.present), lambda row: f"no label {name!r}")
    else:
        labels[~numbers.present] = np.nan
    wrong = numbers.present & ~((numbers.values >= 0) & (numbers.values <= 1))
    _mark(bad, np.flatnonzero(wrong), lambda row: f"label {name!r} is {_show(array, row)}, not between 0 and 1")
    return labels


def _read_weights(array: pa.Array, bad: Bad) -> NDArray[np.float32]:
    numbers = _read_cells(array, "weight", bad)
    weights = np.where(numbers.present, numbers.values, 1.0).astype(np.float32)
    _mark(bad, np.flatnonzero(~(np.isfinite(weights) & (weights >= 0))), lambda row: f"weight {_show(array, row)}")
    return weights


def _read_cells(array: pa.Array, name: str, bad: Bad) -> Numbers:
    numbers = read_numbers(array, name)
    _mark(bad, numbers.wrong, lambda row: f"{name!r} is {_show(array, row)}, not a number")
    return numbers


def _read_dense(array: pa.Array, slot: DenseSlot, is_text: bool, missing: float, bad: Bad) -> NDArray[np.float32]:
    rows = len(array)
    cells, offsets = _split(array, slot.separator if is_text and slot.dim > 1 else None, keep_nulls=True)
    counts = np.diff(offsets)
    absent = ~array.is_valid().to_numpy(zero_copy_only=False)
    wrong = (counts != slot.dim) & ~absent
    _mark(
        bad,
        np.flatnonzero(wrong),
        lambda row: f"dense slot {slot.name!r} has {counts[row]} values, not {slot.dim}",
    )
    numbers = read_numbers(cells, slot.name)
    dimension = np.arange(len(cells)) - np.repeat(offsets[:-1], counts)
    values = _transform(numbers.values, numbers.present, slot, dimension, missing)
    broken = ~np.isfinite(values)
    broken[numbers.wrong] = True
    owners = np.repeat(np.arange(rows), counts)
    _mark(bad, owners[broken], lambda row: f"dense slot {slot.name!r} is {_show(array, row)}, not a finite number")
    out = np.full((rows, slot.dim), missing, np.float32)
    out[~wrong & ~absent] = values[~(wrong | absent)[owners]].reshape(-1, slot.dim)
    return out


def _transform(
    values: NDArray[np.float64],
    present: NDArray[np.bool_],
    slot: DenseSlot,
    dimension: NDArray[np.int64],
    missing: float,
) -> NDArray[np.float32]:
    if np.signbit(missing):  # -0.0 is missing, written out too
        present = present & ~((values == 0) & np.signbit(values))
    at = np.minimum(dimension, slot.dim - 1)  # cells past the slot's width belong to rows that are bad already
    with np.errstate(over="ignore", invalid="ignore"):
        if slot.transform == "log1p":
            values = np.log1p(np.maximum(values, 0.0))
            if slot.diff:
                values = values.astype(np.float32) / np.asarray(slot.diff)[at]  # rounded as the native parser does
        elif slot.transform == "scale":
            values = (values - np.asarray(slot.min)[at]) / np.asarray(slot.diff)[at]
        return np.where(present, values, missing).astype(np.float32)


def _read_bags(
    array: pa.Array, slot: SparseSlot, seed: int, is_text: bool, bad: Bad
) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    cells, offsets = _split(array, slot.separator if is_text else None, keep_nulls=False)
    kind = cells.type
    is_string = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if not (is_string or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise ConfigError(f"column {slot.column or slot.name!r} holds {kind}; a sparse slot needs integers or strings")
    if slot.values == "string" and not is_string:
        cells, is_string = cells.cast(pa.string()), True
    if is_string and slot.values != "id":
        values = _hash(cells, slot.hashed_as, seed)
    else:
        values, wrong = read_ids(cells)
        owners = np.repeat(np.arange(len(array)), np.diff(offsets))
        _mark(
            bad, owners[wrong], lambda row: f"slot {slot.name!r}: {_show(array, row)} is not a feasign of 0 to 2^64-1"
        )
    return _limit(values, offsets, slot)


def _split(array: pa.Array, separator: str | None, *, keep_nulls: bool) -> tuple[pa.Array, NDArray[np.int32]]:
    """Single cells and the offsets of each row's."""
    array = flatten(array)
    if separator is not None:
        array = pc.split_pattern(array, separator)
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        counts = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        cells = flatten(array.flatten())
    else:
        counts = array.is_valid().to_numpy(zero_copy_only=False).astype(np.int32)
        cells = array.drop_null()
    if not keep_nulls:
        # Empty pieces between separators count as absent too.
        keep = cells.is_valid().to_numpy(zero_copy_only=False)
        if separator is not None:
            keep &= pc.fill_null(pc.greater(pc.binary_length(cells), 0), False).to_numpy(zero_copy_only=False)
        if not keep.all():
            owners = np.repeat(np.arange(len(counts)), counts)
            cells = cells.filter(pa.array(keep))
            counts = np.bincount(owners[keep], minlength=len(counts))
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return cells, offsets


def _hash(cells: pa.Array, slot: str, seed: int) -> NDArray[np.uint64]:
    if len(cells) == 0:
        return np.zeros(0, np.uint64)
    _, offsets, data = cells.buffers()
    starts = np.frombuffer(offsets, np.int32)[cells.offset : cells.offset + len(cells) + 1]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    hashes: NDArray[np.uint64] = _native.hash_strings(starts, text, slot, seed)
    return hashes


def _limit(
    values: NDArray[np.uint64], offsets: NDArray[np.int32], slot: SparseSlot
) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """At most `max_values` per sample: the first for pooling, the last for sequences."""
    counts = np.diff(offsets)
    if counts.max(initial=0) <= slot.max_values:
        return values, offsets
    position = np.arange(len(values)) - np.repeat(offsets[:-1], counts)
    first = np.repeat(counts - slot.max_values, counts) if slot.pooling is Pooling.NONE else 0
    kept = np.zeros_like(offsets)
    np.cumsum(np.minimum(counts, slot.max_values), out=kept[1:])
    return values[(position >= first) & (position < first + slot.max_values)], kept


def _show(array: pa.Array, row: int) -> str:
    value: Any = array[row].as_py()
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return repr(text if len(text) <= 40 else text[:37] + "...")
