"""Rows in Parquet and Arrow files: a column of feasigns and one of rows (lists of floats, or encoded bytes)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elasticctr.data.formats.arrow_errors import explain_arrow
from elasticctr.errors import DataError, NotFound
from elasticctr.storage import Source
from elasticctr.versions.interchange.rows import Block, Feasigns, RowBytes, RowInfo, interpret

_BATCH_ROWS = 1 << 17
# What Arrow raises for unreadable bytes and for lack of memory.
_FOREIGN = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
_KEYS = ("feasign", "key", "id")
_ROWS = ("row", "values", "value", "embedding")


class ColumnarRows:
    """Parquet or Arrow files with one layout. Their first bytes tell which."""

    def __init__(self, files: Sequence[Source], encoding: str | None = None) -> None:
        self._files = files
        self._encoding = encoding
        self.count = sum(_count(file) for file in files)
        for file in files:
            for batch in _batches(file):
                if batch.num_rows:
                    self.info = _info(batch, encoding, file.path)
                    return
        raise DataError("holds no rows", files[0].path)

    def blocks(self) -> Iterator[Block]:
        for file in self._files:
            for batch in _batches(file):
                if batch.num_rows:
                    yield self._block(batch, file.path)

    def gone(self) -> Iterator[Feasigns]:
        return iter(())

    def _block(self, batch: pa.RecordBatch, path: str) -> Block:
        info = _info(batch, self._encoding, path)
        if info != self.info:
            raise DataError(f"rows of {info.row_bytes} bytes; those before have {self.info.row_bytes}", path)
        keys = _column(batch, _KEYS, path)
        if keys.null_count:
            raise DataError("a feasign is null", path)
        feasigns = keys.to_numpy(zero_copy_only=False).astype(np.uint64)
        return feasigns, _bytes_of(_column(batch, _ROWS, path), info, path)


class ParquetRowWriter:
    """`feasign` uint64, `values` a list of dim floats."""

    def __init__(self, file: IO[bytes], dim: int) -> None:
        self._dim = dim
        self._schema = pa.schema([("feasign", pa.uint64()), ("values", pa.list_(pa.float32(), dim))])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd", use_dictionary=False)

    def write(self, feasigns: Feasigns, rows: RowBytes) -> None:
        values = pa.array(np.ascontiguousarray(rows).view("<f4").reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(values, self._dim)
        self._writer.write_batch(pa.record_batch([pa.array(feasigns), lists], schema=self._schema))

    def finish(self) -> None:
        self._writer.close()


def _open(file: Source) -> Any:
    raw = file.open_seekable()
    try:
        is_parquet = raw.read(4) == b"PAR1"
        raw.seek(0)
        return pq.ParquetFile(raw) if is_parquet else pa.ipc.open_file(pa.PythonFile(raw, mode="r"))
    except BaseException as e:
        raw.close()
        raise _explain(e, file.path) from None


def _count(file: Source) -> int:
    opened = _open(file)
    try:
        if isinstance(opened, pq.ParquetFile):
            return int(opened.metadata.num_rows)
        return sum(opened.get_batch(i).num_rows for i in range(opened.num_record_batches))
    except BaseException as e:
        raise _explain(e, file.path) from None


def _batches(file: Source) -> Iterator[pa.RecordBatch]:
    opened = _open(file)
    try:
        if isinstance(opened, pq.ParquetFile):
            yield from opened.iter_batches(batch_size=_BATCH_ROWS)
        else:
            for i in range(opened.num_record_batches):
                yield opened.get_batch(i)
    except _FOREIGN as e:
        raise _explain(e, file.path) from None


def _explain(error: BaseException, path: str) -> BaseException:
    if isinstance(error, _FOREIGN):
        return explain_arrow(error, path, "damaged or in another format: {}; fetch it again")
    return error


def _column(batch: pa.RecordBatch, names: Sequence[str], path: str) -> pa.Array:
    try:
        known = list(batch.schema.names)
    except _FOREIGN as e:  # names must be UTF-8, or the file is damaged
        raise _explain(e, path) from None
    for name in names:
        if known.count(name) == 1:
            return batch.column(known.index(name))
    raise NotFound(f"{path}: no column {' or '.join(names)}; it has {', '.join(known)}")


def _info(batch: pa.RecordBatch, encoding: str | None, path: str) -> RowInfo:
    keys, rows = _column(batch, _KEYS, path), _column(batch, _ROWS, path)
    if keys.type not in (pa.uint64(), pa.int64()):
        raise DataError(f"feasigns are {keys.type}; they must be uint64 or int64", path)
    kind = rows.type
    if pa.types.is_fixed_size_binary(kind):
        return interpret(kind.byte_width, encoding, path)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return interpret(pc.binary_length(rows[:1])[0].as_py() or 0, encoding, path)
    if pa.types.is_fixed_size_list(kind) and kind.value_type in (pa.float32(), pa.float64()):
        return interpret(4 * kind.list_size, "fp32", path)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and kind.value_type in (pa.float32(), pa.float64()):
        return interpret(4 * (pc.list_value_length(rows[:1])[0].as_py() or 0), "fp32", path)
    raise DataError(f"rows are {kind}; they must be lists of floats or binary", path)


def _bytes_of(rows: pa.Array, info: RowInfo, path: str) -> npt.NDArray[np.uint8]:
    if rows.null_count:
        raise DataError("a row is null", path)
    kind = rows.type
    if pa.types.is_fixed_size_binary(kind):
        flat = np.frombuffer(rows.buffers()[1], np.uint8)[rows.offset * info.row_bytes :]
        return flat[: len(rows) * info.row_bytes].reshape(-1, info.row_bytes)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        if pc.any(pc.not_equal(pc.binary_length(rows), info.row_bytes)).as_py():
            raise DataError(f"not all rows have {info.row_bytes} bytes", path)
        return _bytes_of(rows.cast(pa.binary(info.row_bytes)), info, path)
    if not pa.types.is_fixed_size_list(kind) and pc.any(pc.not_equal(pc.list_value_length(rows), info.dim)).as_py():
        raise DataError(f"not all rows have {info.dim} numbers", path)
    values = rows.flatten()
    if values.null_count:
        raise DataError("a number in a row is null", path)
    with np.errstate(over="ignore"):
        floats = np.ascontiguousarray(values.to_numpy(zero_copy_only=False), np.float32)
    if not np.isfinite(floats).all():
        raise DataError("a number in a row is not a finite 32-bit float", path)
    return floats.view(np.uint8).reshape(-1, info.row_bytes)
