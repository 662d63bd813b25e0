"""The values of a logged request by slot and sample, before hashing and transforms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticctr.data.schema import Format, Schema

_STRINGS = (Format.CRITEO, Format.CSV, Format.PARQUET)  # their values are texts unless a slot says id


@dataclass(slots=True)
class Decoded:
    """Values as texts and numbers. Slots in `final` hold feasigns, and dense floats after transforms."""

    count: int
    sparse: dict[str, list[list[str]]] = field(default_factory=dict)  # per sample
    dense: dict[str, list[list[float] | None]] = field(default_factory=dict)
    final: set[str] = field(default_factory=set)  # slots
    lines: list[str] | None = None  # instead of everything above
    format: str | None = None  # of the lines; None: the schema's


def is_hashed(schema: Schema, name: str) -> bool:
    """Whether texts of a sparse slot are hashed: as the slot says, or else its format."""
    slot = next(slot for slot in schema.sparse if slot.name == name)
    return slot.values == "string" or (slot.values == "auto" and schema.format in _STRINGS)


def as_feasign(value: Any) -> int:
    """A whole number as 64 bits. Clients without unsigned integers send the largest as negative numbers."""
    return int(value) & ((1 << 64) - 1)
