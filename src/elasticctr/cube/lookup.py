"""The answer to a lookup, the same from a remote client and from files opened in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Lookup:
    """The rows of some feasigns, all from one version of one table."""

    rows: NDArray[Any]
    """float32 [n, dim], decoded; uint8 [n, row_bytes] for a raw table. A missing row is zeros."""
    found: NDArray[np.bool_]
    """[n]; whether the table has the feasign."""
    version: int
    """The version that answered."""
    degraded: tuple[int, ...] = ()
    """Shards that did not answer; their rows are zeros and not found. Empty unless the caller allows degrading."""

    @property
    def misses(self) -> int:
        return int(self.found.size - np.count_nonzero(self.found))
