"""What the slots of a log mean: which are labels, dense or sparse, and how each is turned into numbers.

A schema is read from YAML, stored with every cached sample set, checkpoint and version, and given to the native
parser. It knows nothing of files, models or tables beyond their names.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, Tag, model_validator

from elasticctr.config import Settings, tagged_by


class Format(StrEnum):
    FEASIGN = "feasign"
    SLOT = "slot"
    CRITEO = "criteo"
    LIBSVM = "libsvm"
    LIBFFM = "libffm"
    CSV = "csv"
    PARQUET = "parquet"


class Pooling(StrEnum):
    SUM = "sum"
    MEAN = "mean"
    NONE = "none"  # kept as a sequence


class SparseSlot(Settings):
    """A slot whose values are feasigns, any number of them per sample."""

    kind: Literal["sparse"] = Field("sparse", description="sparse: values are feasigns")
    name: str = Field(description="as the log has it; part of the feature hash")
    column: str | None = Field(None, description="column of a CSV or Parquet file; default: the slot's name")
    pooling: Pooling = Field(Pooling.SUM, description="what becomes of several values; none: kept as a sequence")
    values: Literal["auto", "id", "string"] = Field(
        "auto", description="id: decimal feasigns; string: hashed with the slot's name; auto: as the format has them"
    )
    separator: str | None = Field(None, description="splits a CSV cell into several values, for example '|'")
    table: str = Field("main", description="slots that name the same table share rows")
    dim: int | None = Field(None, ge=1, le=4096, description="embedding width; default: the model's")
    max_values: int = Field(
        1024, ge=1, le=1 << 20, description="values kept per sample: the first for pooling, the last for sequences"
    )


class DenseSlot(Settings):
    """A slot of `dim` floats per sample."""

    kind: Literal["dense"] = Field("dense", description="dense: values are floats")
    name: str = Field(description="as the log has it")
    column: str | None = Field(None, description="column of a CSV or Parquet file; default: the slot's name")
    dim: int = Field(1, ge=1, le=65536, description="floats per sample")
    separator: str = Field("|", min_length=1, description="splits a CSV cell into its dim numbers")
    transform: Literal["none", "log1p", "scale"] = Field(
        "none", description="log1p: ln(1 + max(x, 0)); scale: (x - min) / diff; a missing value is 0 after it"
    )
    min: tuple[float, ...] = Field((), description="one per dimension, for transform: scale")
    diff: tuple[float, ...] = Field((), description="one per dimension, for transform: scale")

    @model_validator(mode="after")
    def _check_scale(self) -> DenseSlot:
        if self.transform == "scale":
            if len(self.min) != self.dim or len(self.diff) != self.dim:
                raise ValueError(f"slot {self.name!r}: transform scale needs {self.dim} values in min and in diff")
            if any(d == 0 for d in self.diff):
                raise ValueError(f"slot {self.name!r}: diff must not hold a 0")
        elif self.min or self.diff:
            raise ValueError(f"slot {self.name!r}: min and diff go with transform: scale")
        return self


Slot = Annotated[
    Annotated[SparseSlot, Tag("sparse")] | Annotated[DenseSlot, Tag("dense")], tagged_by("kind", default="sparse")
]


class Schema(Settings):
    """All slots of a log. The order of `slots` is the order of columns everywhere downstream."""

    format: Format = Field(Format.SLOT, description="how the files are written")
    label: tuple[str, ...] = Field(("click",), description="label slots or columns; a run is judged by the first")
    weight: str | None = Field(None, description="slot or column with a weight per sample; default: 1 each")
    slots: tuple[Slot, ...] = Field(description="in the order of columns everywhere downstream")
    hash_seed: int = Field(0, ge=0, lt=1 << 64, description="seed of the feature hash")
    delimiter: str = Field(",", min_length=1, max_length=1, description="of CSV files")
    header: bool = Field(True, description="whether CSV files start with column names")
    null_values: tuple[str, ...] = Field(("", "NA", "NaN", "null"), description="CSV cells that mean: missing")

    @model_validator(mode="before")
    @classmethod
    def _accept_one_label(cls, data: object) -> object:
        if isinstance(data, dict) and isinstance(data.get("label"), str):
            return {**data, "label": (data["label"],)}
        return data

    @model_validator(mode="after")
    def _check_names(self) -> Schema:
        if not self.slots:
            raise ValueError("a schema needs at least one slot")
        if not self.label:
            raise ValueError("a schema needs a label")
        if len(set(self.label)) < len(self.label):
            raise ValueError(f"a label is named twice: {', '.join(self.label)}")
        names = [slot.name for slot in self.slots]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"slot {name!r} is declared twice")
            if name in self.label or name == self.weight:
                raise ValueError(f"slot {name!r} is the label or the weight already")
        return self

    @property
    def sparse(self) -> tuple[SparseSlot, ...]:
        return tuple(slot for slot in self.slots if isinstance(slot, SparseSlot))

    @property
    def dense(self) -> tuple[DenseSlot, ...]:
        return tuple(slot for slot in self.slots if isinstance(slot, DenseSlot))

    @property
    def dense_dim(self) -> int:
        return sum(slot.dim for slot in self.dense)

    def joined(self, format: Format) -> Schema:
        """The same slots in files whose values are feasigns already and whose dense floats are after their transforms,
        as `elasticctr feedback join` writes them."""
        slots = tuple(
            slot.model_copy(update={"values": "id"})
            if isinstance(slot, SparseSlot)
            else slot.model_copy(update={"transform": "none", "min": (), "diff": ()})
            for slot in self.slots
        )
        return self.model_copy(update={"format": format, "weight": None, "slots": slots})

    def fingerprint(self) -> str:
        """Changes with anything that changes parsed samples."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
