"""Which samples a fraction keeps, by a hash of each: the rule of the native parser for rows that are not lines."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def keep_hashes(hashes: NDArray[np.uint64], fraction: tuple[float, float]) -> NDArray[np.bool_]:
    """Where low <= hash / 2^64 < high."""
    low, high = (math.ceil(math.ldexp(edge, 64)) for edge in fraction)
    keep = hashes >= np.uint64(low) if low < 1 << 64 else np.zeros(len(hashes), np.bool_)
    return keep if high >= 1 << 64 else keep & (hashes < np.uint64(high))
