"""Feasigns for tools: read from a file, or synthetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticctr.errors import ConfigError, DataError, NotFound

MOST = (1 << 64) - 1


def parse_feasign(text: str) -> int:
    """A whole number, decimal or 0x hexadecimal. Negative numbers are feasigns printed as signed 64-bit integers."""
    try:
        value = int(text, 0)
    except ValueError:
        raise DataError(f"{text!r} is not a feasign: a whole number from 0 to 2⁶⁴ - 1") from None
    if not -(MOST + 1) // 2 <= value <= MOST:
        raise DataError(f"{text} is not a feasign: it does not fit into 64 bits")
    return value & MOST


def read_feasigns(path: Path) -> NDArray[np.uint64]:
    """One feasign per line, as in Paddle's cube-cli; blank lines are skipped."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"cannot be read as text: {e}", path) from None
    values = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                values.append(parse_feasign(line.strip()))
            except DataError as e:
                raise DataError(str(e), path, number) from None
    return np.array(values, dtype=np.uint64)


def draw_feasigns(among: int, count: int, zipf: float | None = None, seed: int = 1) -> NDArray[np.uint64]:
    """`count` feasigns of 0 … among - 1, uniform or, with `zipf` (an exponent above 1), Zipf-distributed."""
    if among < 1 or count < 1:
        raise ConfigError("cannot draw feasigns: both counts must be at least 1")
    if zipf is not None and not zipf > 1:
        raise ConfigError(f"a zipf exponent must be above 1, for example 1.1; not {zipf}")
    rng = np.random.default_rng(seed)
    if zipf is None:
        return rng.integers(0, among, count, dtype=np.uint64)
    ranks = rng.zipf(zipf, count).astype(np.uint64) % np.uint64(among)
    # Frequent feasigns are spread over the whole range.
    return (ranks * np.uint64(0x9E3779B97F4A7C15)) % np.uint64(among)
