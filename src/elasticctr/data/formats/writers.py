"""Samples to files in any format: text natively, CSV and Parquet through pyarrow, .gz and .zst by suffix.

A file appears under its name when it is complete; before that, and after a failure, there is no file.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import yaml

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.data.schema import DenseSlot, Format, Schema, SparseSlot
from elasticctr.errors import ConfigError, InternalError
from elasticctr.storage.atomic import atomic_file

# Splits several values of one CSV cell where the schema names no separator.
VALUE_SEPARATOR = "|"


class Writer(Protocol):
    schema: Schema

    def write(self, batch: Batch) -> None: ...


@contextmanager
def open_writer(
    path: Path, schema: Schema, hex_slots: tuple[bool, ...] = (), overwrite: bool = False
) -> Iterator[Writer]:
    """Writes `schema.format` to `path`. `hex_slots`: sparse slots whose values are strings of 8 hex digits."""
    hex_slots = hex_slots or (False,) * len(schema.sparse)
    if schema.format is Format.PARQUET and path.suffix in (".gz", ".zst"):
        raise ConfigError(f"{path}: Parquet is compressed inside; leave {path.suffix} off the name")
    with atomic_file(path, overwrite=overwrite) as stream:
        if schema.format is Format.PARQUET:
            parquet = ParquetWriter(stream, schema, hex_slots)
            yield parquet
            parquet.close()
            return
        with _compressed(stream, path) as packed:
            yield (
                CsvWriter(packed, schema, hex_slots)
                if schema.format is Format.CSV
                else TextWriter(packed, schema, hex_slots)
            )


def save_schema(schema: Schema, path: Path, overwrite: bool = False) -> None:
    """`schema` as YAML that reads back to the same schema."""
    with atomic_file(path, overwrite=overwrite) as stream:
        stream.write(schema_yaml(schema).encode())


def schema_yaml(schema: Schema) -> str:
    """`schema` as YAML. Settings at their defaults are left out, but for what a reader looks for first."""
    slots = [{"kind": s.kind, "name": s.name, **s.model_dump(mode="json", exclude_defaults=True)} for s in schema.slots]
    rest = schema.model_dump(mode="json", exclude_defaults=True, exclude={"format", "label", "slots"})
    document = {"format": str(schema.format), "label": list(schema.label), **rest, "slots": slots}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


class TextWriter:
    """slot, feasign, criteo, libsvm or libffm lines."""

    def __init__(self, stream: IO[bytes], schema: Schema, hex_slots: tuple[bool, ...]) -> None:
        for name in (*schema.label, schema.weight or "", *(slot.name for slot in schema.logged)):
            if ":" in name or name.split() != [name] * bool(name):
                raise ConfigError(
                    f"slot name {name!r} holds a blank or a colon, which the {schema.format} format cannot"
                )
        self.schema = schema
        self._stream = stream
        hexes = iter(hex_slots)
        slots = [
            (slot.name, True, slot.dim, False) if isinstance(slot, DenseSlot) else (slot.name, False, 1, next(hexes))
            for slot in schema.logged
        ]
        self._layout = _native.LineLayout(str(schema.format), list(schema.label), schema.weight or "", slots)

    def write(self, batch: Batch) -> None:
        self._stream.write(
            self._layout.write(batch.labels, batch.dense, batch.values, batch.offsets, batch.weights, batch.shows)
        )


class CsvWriter:
    """One column per label, dense slot and sparse slot; several values of a cell joined by the slot's separator."""

    def __init__(self, stream: IO[bytes], schema: Schema, hex_slots: tuple[bool, ...]) -> None:
        self.schema = schema
        self._hex_slots = hex_slots
        self._options = pa.csv.WriteOptions(
            include_header=schema.header, delimiter=schema.delimiter, quoting_style="needed"
        )
        self._stream = stream

    def write(self, batch: Batch) -> None:
        table = columns_of(batch, self.schema, self._hex_slots, join=True)
        pa.csv.write_csv(table, self._stream, self._options)
        self._options = pa.csv.WriteOptions(
            include_header=False, delimiter=self.schema.delimiter, quoting_style="needed"
        )


class ParquetWriter:
    """Columns as in CSV, several values as lists, feasigns as uint64."""

    def __init__(self, stream: IO[bytes], schema: Schema, hex_slots: tuple[bool, ...]) -> None:
        self.schema = schema
        self._hex_slots = hex_slots
        self._stream = stream
        self._writer: pa.parquet.ParquetWriter | None = None

    def write(self, batch: Batch) -> None:
        table = columns_of(batch, self.schema, self._hex_slots, join=False)
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(self._stream, table.schema, compression="zstd")
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is None:
            raise InternalError("a Parquet file needs at least one batch, which may be empty")
        self._writer.close()


def merge_slots(batch: Batch, schema: Schema) -> Batch:
    """All sparse values of a sample as those of the one sparse slot `schema` has, slot after slot."""
    n, slots = len(batch), len(batch.schema.sparse)
    counts = np.diff(batch.offsets).reshape(slots, n)
    rows = np.repeat(np.tile(np.arange(n), slots), counts.ravel())
    offsets = np.zeros(n + 1, dtype=np.int32)
    np.cumsum(counts.sum(axis=0), out=offsets[1:])
    values = batch.values[batch.offsets[0] : batch.offsets[-1]][np.argsort(rows, kind="stable")]
    return Batch(schema, batch.labels, batch.dense, values, offsets, batch.weights, batch.shows)


def columns_of(batch: Batch, schema: Schema, hex_slots: tuple[bool, ...], join: bool) -> pa.Table:
    """`batch` as an Arrow table. `join`: several values become one string, for CSV."""
    names, arrays = [], []
    for i, name in enumerate(schema.label):
        names.append(name)
        arrays.append(pa.array(batch.labels[:, i]))
    if schema.weight is not None:
        names.append(schema.weight)
        arrays.append(pa.array(batch.weights))
    first = sparse = 0
    for slot in schema.logged:
        names.append(slot.column or slot.name)
        if isinstance(slot, DenseSlot):
            arrays.append(_dense_column(batch, slot, first, join))
            first += slot.dim
        else:
            arrays.append(_sparse_column(batch, slot, sparse, hex_slots[sparse], join))
            sparse += 1
    return pa.table(dict(zip(names, arrays, strict=True)))


def _dense_column(batch: Batch, slot: DenseSlot, first: int, join: bool) -> pa.Array:
    block = np.ascontiguousarray(batch.dense[:, first : first + slot.dim])
    flat = pa.array(block.ravel(), from_pandas=True)
    if slot.dim == 1:
        return flat
    lists = pa.FixedSizeListArray.from_arrays(flat, slot.dim)
    if not join:
        return lists
    return pc.binary_join(lists.cast(pa.list_(pa.string())), slot.separator)


def _sparse_column(batch: Batch, slot: SparseSlot, index: int, is_hex: bool, join: bool) -> pa.Array:
    values, offsets = batch.slot(index)
    flat = pa.array([f"{v:08x}" for v in values.tolist()], pa.string()) if is_hex else pa.array(values)
    counts = np.diff(offsets)
    if not join:
        return pa.ListArray.from_arrays(pa.array(offsets), flat)
    if counts.max(initial=0) <= 1:
        column = np.full(len(counts), -1, dtype=np.int64)
        column[counts > 0] = np.arange(len(values))
        return flat.take(pa.array(column, mask=counts == 0))
    lists = pa.ListArray.from_arrays(pa.array(offsets), flat if is_hex else flat.cast(pa.string()))
    return pc.binary_join(lists, slot.separator or VALUE_SEPARATOR)


@contextmanager
def _compressed(stream: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    if path.suffix == ".gz":
        # No file name and time in the header: the same samples give the same bytes.
        with gzip.GzipFile("", "wb", compresslevel=4, fileobj=stream, mtime=0) as packed:
            yield cast("IO[bytes]", packed)
    elif path.suffix == ".zst":
        # Arrow closes what it writes to.
        with os.fdopen(os.dup(stream.fileno()), "wb") as twin, pa.CompressedOutputStream(twin, "zstd") as packed:
            yield cast("IO[bytes]", packed)
    else:
        yield stream
