"""Rows of 8-bit numbers between the row's minimum and maximum, as Paddle's cube tools quantise them:
f32 min, f32 max, dim × u8. Read as floats, since cube files have no such encoding.

Value i is `min + q[i] * (max - min) / 256`, as every reader of that layout computes it. Its writers divided by 255, so
their values come out low by up to 1/256 of the range. `encode` stores the max that makes the readers' formula exact at
both ends.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from elasticctr.errors import DataError
from elasticctr.versions.interchange.rows import Block, Feasigns, RowBytes, RowInfo, RowSource

HEAD_BYTES = 8
_STEPS = np.float32(256)


class MinMaxRows:
    """A source of quantised rows, as fp32 rows."""

    def __init__(self, quantised: RowSource, location: str) -> None:
        dim = quantised.info.row_bytes - HEAD_BYTES
        if dim < 1:
            raise DataError(
                f"values of {quantised.info.row_bytes} bytes; 8-bit rows have 8 bytes and one per number", location
            )
        self.info = RowInfo("fp32", dim, 4 * dim)
        self._quantised = quantised
        self._location = location

    @property
    def count(self) -> int | None:
        return self._quantised.count

    def blocks(self) -> Iterator[Block]:
        for feasigns, rows in self._quantised.blocks():
            values = decode(rows)
            bad = ~np.isfinite(values).all(axis=1)
            if bad.any():
                raise DataError(
                    f"the row of feasign {feasigns[bad.argmax()]} has a range that is not a number", self._location
                )
            yield feasigns, values.view(np.uint8)

    def gone(self) -> Iterator[Feasigns]:
        return self._quantised.gone()


def decode(rows: RowBytes) -> npt.NDArray[np.float32]:
    low, high = np.ascontiguousarray(rows[:, :HEAD_BYTES]).view("<f4").T
    with np.errstate(invalid="ignore", over="ignore"):
        scale = (high - low) / _STEPS
        return np.asarray(low[:, None] + rows[:, HEAD_BYTES:] * scale[:, None], np.float32)


def encode(values: npt.NDArray[np.float32]) -> RowBytes:
    low, high = values.min(axis=1), values.max(axis=1)
    high = (low + (high - low) * (_STEPS / 255)).astype(np.float32)
    scale = (high - low) / _STEPS
    steps = np.divide(values - low[:, None], scale[:, None], out=np.zeros_like(values), where=scale[:, None] > 0)
    rows = np.empty((len(values), HEAD_BYTES + values.shape[1]), np.uint8)
    rows[:, :HEAD_BYTES] = np.stack([low, high], axis=1).astype("<f4").view(np.uint8)
    rows[:, HEAD_BYTES:] = np.rint(steps).clip(0, 255)
    return rows
