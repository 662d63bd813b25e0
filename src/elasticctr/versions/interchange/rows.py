"""Rows on their way in or out: blocks of (feasigns, row bytes) and what the bytes mean.

Every reader here is a `RowSource`, every writer a `RowWriter`; the cube builder takes any object of RowSource's shape.
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
    """What a row's bytes are. `dim` is the number of floats in it; 0 if raw."""

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
        """Rows there are, where the source knows it without reading them all."""
        ...

    def blocks(self) -> Iterator[Block]:
        """All rows: feasigns uint64[n] and row bytes uint8[n, row_bytes], contiguous, some MiB at a time. Each call
        reads from the start. A feasign may come twice; the last one counts."""
        ...

    def gone(self) -> Iterator[Feasigns]:
        """Feasigns a delta takes away; mostly none."""
        ...


class RowWriter(Protocol):
    def write(self, feasigns: Feasigns, rows: RowBytes) -> None: ...

    def finish(self) -> None:
        """Writes what must stand at the end; the file itself is closed by whoever opened it."""
        ...


def interpret(width: int, encoding: str | None, location: str) -> RowInfo:
    """What rows of `width` bytes hold if their file does not say: `encoding`, or floats."""
    if encoding is None:
        if width % 4:
            raise DataError(
                f"values of {width} bytes are no floats; say if they are raw, fp16, int8 or min_max", location
            )
        encoding = "fp32"
    sizes = {"raw": (0, 1), "fp32": (0, 4), "fp16": (0, 2), "int8": (4, 1)}
    if encoding not in sizes:
        raise ConfigError(f"encoding {encoding!r} is unknown; known: {', '.join([*ENCODINGS, 'min_max'])}")
    head, each = sizes[encoding]
    if width <= head or (width - head) % each:
        raise DataError(f"values of {width} bytes cannot be {encoding} rows", location)
    return RowInfo(encoding, 0 if encoding == "raw" else (width - head) // each, width)
