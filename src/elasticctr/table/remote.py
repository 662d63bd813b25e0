"""Pooling and gradient sums for rows of remote tables; a thin layer over native/table/remote.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr._native import Layout, Lookup, SummedGradients

Array = Any  # float32 [samples, width] or [samples, length, width], columns contiguous


def pool_rows(lookup: Lookup, layout: Layout, rows: NDArray[np.float32], targets: Sequence[Array]) -> None:
    """Writes the same into `targets` as Table.pull, from the rows [distinct, weights] of the lookup's feasigns."""
    _native.pool_rows(lookup, layout, rows, targets)


def sum_gradients(
    lookup: Lookup,
    layout: Layout,
    gradients: Sequence[Array],
    clicks: Array | None = None,
    shows: Array | None = None,
) -> SummedGradients:
    """The gradients of each distinct feasign, summed over its occurrences like in Table.push."""
    return _native.sum_gradients(lookup, layout, gradients, clicks, shows)
