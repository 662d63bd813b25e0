"""Arrow cells → numbers. The usual case is one vectorised cast; cells it refuses are looked at one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from elasticctr.errors import ConfigError

_LIMIT = 1 << 64


@dataclass(frozen=True, slots=True)
class Numbers:
    values: NDArray[np.float64]  # anything where absent or wrong
    present: NDArray[np.bool_]
    wrong: NDArray[np.intp]  # cells that are no number


def read_numbers(cells: pa.Array, column: str) -> Numbers:
    """Cells as floats. `column` names them in messages."""
    kind = cells.type
    present: NDArray[np.bool_] = cells.is_valid().to_numpy(zero_copy_only=False)
    nothing = np.zeros(0, np.intp)
    if _is_text(kind):
        try:
            floats = pc.cast(cells.cast(pa.string()), pa.float64())
        except pa.ArrowInvalid:
            return _read_slowly(cells, present)
    elif pa.types.is_boolean(kind):
        floats = cells.cast(pa.uint8()).cast(pa.float64())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        floats = cells.cast(pa.float64(), safe=False)
    else:
        raise ConfigError(f"column {column!r} holds {kind}, which are not numbers; choose another column")
    return Numbers(pc.fill_null(floats, 0.0).to_numpy(zero_copy_only=False), present, nothing)


def read_ids(cells: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    """Cells without nulls as feasigns, and which of them are none."""
    kind = cells.type
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return cells.cast(pa.uint64()).to_numpy(zero_copy_only=False), np.zeros(0, np.intp)
    if pa.types.is_integer(kind):
        integers = cells.to_numpy(zero_copy_only=False)
        return integers.astype(np.uint64), np.flatnonzero(integers < 0)
    try:
        text = cells.cast(pa.string())
        return pc.cast(text, pa.uint64()).to_numpy(zero_copy_only=False), np.zeros(0, np.intp)
    except pa.ArrowInvalid:
        values = np.zeros(len(cells), np.uint64)
        wrong = []
        for i, cell in enumerate(cells.cast(pa.binary()).to_pylist()):
            digits = cell.strip()
            if digits.isdigit() and len(digits) <= 100 and int(digits) < _LIMIT:
                values[i] = int(digits)
            else:
                wrong.append(i)
        return values, np.array(wrong, np.intp)


def _read_slowly(cells: pa.Array, present: NDArray[np.bool_]) -> Numbers:
    values = np.zeros(len(cells), np.float64)
    wrong = []
    for i, cell in enumerate(cells.cast(pa.binary()).to_pylist()):
        if cell is None:
            continue
        try:
            # Python would take 1_000 for a number.
            values[i] = float(cell) if b"_" not in cell else float("")
        except ValueError:
            wrong.append(i)
    return Numbers(values, present, np.array(wrong, np.intp))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
