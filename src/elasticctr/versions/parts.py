"""The Arrow files of a version, batch by batch: columns that are what the manifest says, as NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from elasticctr.data.formats.arrow_errors import explain_arrow
from elasticctr.errors import Corruption

_BLOCK_ROWS = 1 << 17


def read_batches(file: Any, where: str) -> Iterator[Any]:
    """Of an open file or of its bytes."""
    try:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            for start in range(0, len(batch), _BLOCK_ROWS):
                yield batch.slice(start, _BLOCK_ROWS)
    except (pa.ArrowException, OSError, MemoryError) as e:
        raise explain_arrow(e, where, "not a readable Arrow file: {}; publish the version again") from None


def feasigns_of(batch: Any, where: str) -> NDArray[np.uint64]:
    column = _column(batch, "feasign", where)
    if column.type != pa.uint64():
        raise Corruption(f"{where}: feasigns of type {column.type}, not uint64")
    feasigns: NDArray[np.uint64] = column.to_numpy()
    return feasigns


def rows_of(batch: Any, width: int, where: str) -> NDArray[np.uint8]:
    """Encoded rows of `width` bytes."""
    column = _column(batch, "row", where)
    if column.type != pa.binary(width):
        raise Corruption(f"{where}: rows of type {column.type}, its manifest says {width} bytes")
    data = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    return data[column.offset * width : (column.offset + len(column)) * width].reshape(len(column), width)


def _column(batch: Any, name: str, where: str) -> Any:
    try:
        names = batch.schema.names
    except ValueError:  # not text
        raise Corruption(f"{where}: the names of its columns are damaged; publish the version again") from None
    if name not in names:
        raise Corruption(f"{where}: has no column {name!r}")
    column = batch.column(name)
    if column.null_count:
        raise Corruption(f"{where}: its column {name!r} has empty values")
    return column
