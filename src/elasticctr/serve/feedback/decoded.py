"""What a logged request gave, by slot and sample, before anything is hashed or transformed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticctr.data.schema import Format, Schema

_STRINGS = (Format.CRITEO, Format.CSV, Format.PARQUET)  # whose values are texts unless a slot says id


@dataclass(slots=True)
class Decoded:
    """Values as texts and numbers. What is `final` holds feasigns and dense floats after transforms."""

    count: int
    sparse: dict[str, list[list[str]]] = field(default_factory=dict)  # per sample
    dense: dict[str, list[list[float] | None]] = field(default_factory=dict)
    final: set[str] = field(default_factory=set)  # slots
    lines: list[str] | None = None  # instead of all the above
    format: str | None = None  # of the lines; None: the schema's


def is_hashed(schema: Schema, name: str) -> bool:
    """Whether texts of a sparse slot are hashed: by its own word, or as its format has them."""
    slot = next(slot for slot in schema.sparse if slot.name == name)
    return slot.values == "string" or (slot.values == "auto" and schema.format in _STRINGS)


def as_feasign(value: Any) -> int:
    """All 64 bits of a whole number, which clients without unsigned ones send below 0."""
    return int(value) & ((1 << 64) - 1)
