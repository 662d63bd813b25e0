"""Rows being read or written: blocks of (feasigns, row bytes) and what the bytes mean.

Every reader here is a `RowSource`, every writer a `RowWriter`; the cube builder accepts any RowSource.
Encodings are those of cube files (docs/formats/cube-file.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from elasticctr.errors import ConfigError, DataError

Feasigns = npt.NDArray[np.uint64]
RowBytes = npt.NDArray[np.uint8]
Block = tuple[Feasigns, RowBytes]

ENCODINGS = ("raw", "fp32", "fp16", "int8")
MAX_ROW_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class RowInfo:
    """What a row's bytes are. `dim` is the number of floats; 0 if raw."""

    encoding: str
    dim: int
    row_bytes: int

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise ConfigError(f"encoding {self.encoding!r} is unknown; known: {', '.join(ENCODINGS)}")
        if not 1 <= self.row_bytes <= MAX_ROW_BYTES:
            raise DataError(f"rows of {self.row_bytes} bytes; a row has 1 to {MAX_ROW_BYTES:,}")


class RowSource(Protocol):
    @property
    def info(self) -> RowInfo: ...

    @property
    def count(self) -> int | None:
        """The number of rows, if the source knows it without reading them all."""
        ...

    def blocks(self) -> Iterator[Block]:
        """All rows: feasigns uint64[n] and row bytes uint8[n, row_bytes], contiguous, a few MiB at a time. Each call
        reads from the start. If a feasign occurs twice, the last row counts."""
        ...

    def gone(self) -> Iterator[Feasigns]:
        """Feasigns that a delta drops; usually none."""
        ...


class RowWriter(Protocol):
    def write(self, feasigns: Feasigns, rows: RowBytes) -> None: ...

    def finish(self) -> None:
        """Writes the end of the file. The caller closes it."""
        ...


def interpret(width: int, encoding: str | None, location: str) -> RowInfo:
    """What rows of `width` bytes hold if their file does not say: `encoding`, or else floats."""
    if encoding is None:
        if width % 4:
            raise DataError(
                f"values of {width} bytes cannot be floats; give their encoding: raw, fp16, int8 or min_max", location
            )
        encoding = "fp32"
    sizes = {"raw": (0, 1), "fp32": (0, 4), "fp16": (0, 2), "int8": (4, 1)}
    if encoding not in sizes:
        raise ConfigError(f"encoding {encoding!r} is unknown; known: {', '.join([*ENCODINGS, 'min_max'])}")
    head, each = sizes[encoding]
    if width <= head or (width - head) % each:
        raise DataError(f"values of {width} bytes cannot be {encoding} rows", location)
    return RowInfo(encoding, 0 if encoding == "raw" else (width - head) // each, width)
