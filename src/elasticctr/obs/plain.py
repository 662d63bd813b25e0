"""Values on their way into JSON."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite


def plain(value: object) -> object:
    """A JSON-able copy: NumPy and torch scalars become numbers, NaN and infinity null, paths text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)
