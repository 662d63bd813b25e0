"""What the slots of a log mean: which are labels, dense or sparse, and how each is turned into numbers.

A schema is read from YAML, stored with every cached sample set, checkpoint and version, and given to the native
parser. It knows nothing of files, models or tables beyond their names.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from itertools import pairwise
from math import isfinite
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


class RowSlot(Settings):
    """The settings of every slot with rows in a table."""

    name: str = Field(description="as the log has it; part of the feature hash")
    pooling: Pooling = Field(Pooling.SUM, description="what becomes of several values; none: kept as a sequence")
    table: str = Field("main", description="slots that name the same table share rows")
    dim: int | None = Field(None, ge=1, le=4096, description="embedding width; default: the model's")
    max_values: int = Field(
        1024, ge=1, le=1 << 20, description="values kept per sample: the first for pooling, the last for sequences"
    )


class SparseSlot(RowSlot):
    """A slot whose values are feasigns, any number of them per sample."""

    kind: Literal["sparse"] = Field("sparse", description="sparse: values are feasigns")
    column: str | None = Field(None, description="column of a CSV or Parquet file; default: the slot's name")
    values: Literal["auto", "id", "string"] = Field(
        "auto", description="id: decimal feasigns; string: hashed with the slot's name; auto: as the format has them"
    )
    separator: str | None = Field(None, description="splits a CSV cell into several values, for example '|'")
    target: str | None = Field(
        None, description="of a sequence: the pooled slot that models look for in it; strings are hashed alike"
    )

    @property
    def hashed_as(self) -> str:
        """The name that strings are hashed with: values of a sequence and of its target must meet in one row."""
        return self.target or self.name


class DenseSlot(Settings):
    """A slot of `dim` floats per sample."""

    kind: Literal["dense"] = Field("dense", description="dense: values are floats")
    name: str = Field(description="as the log has it")
    column: str | None = Field(None, description="column of a CSV or Parquet file; default: the slot's name")
    dim: int = Field(1, ge=1, le=65536, description="floats per sample")
    separator: str = Field("|", min_length=1, description="splits a CSV cell into its dim numbers")
    transform: Literal["none", "log1p", "scale"] = Field(
        "none", description="log1p: ln(1 + max(x, 0)) / diff; scale: (x - min) / diff; a missing value is 0 after it"
    )
    min: tuple[float, ...] = Field((), description="one per dimension, for transform: scale")
    diff: tuple[float, ...] = Field((), description="one per dimension, for scale and log1p; default of log1p: all 1")

    @model_validator(mode="after")
    def _check_scale(self) -> DenseSlot:
        if self.transform == "scale":
            if len(self.min) != self.dim or len(self.diff) != self.dim:
                raise ValueError(f"slot {self.name!r}: transform scale needs {self.dim} values in min and in diff")
        elif self.min:
            raise ValueError(f"slot {self.name!r}: min goes with transform: scale")
        elif self.diff and self.transform == "none":
            raise ValueError(f"slot {self.name!r}: diff goes with transform: scale or log1p")
        elif len(self.diff) not in (0, self.dim):
            raise ValueError(f"slot {self.name!r}: has {len(self.diff)} values in diff, not {self.dim}")
        if not all(map(isfinite, (*self.min, *self.diff))) or 0 in self.diff:
            raise ValueError(f"slot {self.name!r}: min and diff hold finite numbers, diff no 0")
        return self


class DerivedSlot(RowSlot):
    """A slot that no log holds: made from others when rows are looked up, in training and in serving alike."""

    name: str = Field(description="of its own; part of the feature hash")
    dim: int | None = Field(
        None, ge=0, le=4096, description="embedding width; default: the model's; 0: a linear weight only"
    )


class CrossSlot(DerivedSlot):
    """A feasign for every combination of the values of two or three sparse slots."""

    kind: Literal["cross"] = Field("cross", description="cross: every combination of values of other slots")
    of: tuple[str, ...] = Field(
        min_length=2, max_length=3, description="the slots to combine: sparse ones, or buckets declared before"
    )
    max_values: int = Field(
        64, ge=1, le=4096, description="combinations kept per sample: the first for pooling, the last for sequences"
    )


class BucketSlot(DerivedSlot):
    """The feasign of the range that a number of a dense slot falls into; a missing number has its own."""

    kind: Literal["bucket"] = Field("bucket", description="bucket: the range that a number falls into")
    of: str = Field(description="the dense slot that holds the number")
    index: int = Field(0, ge=0, description="which of its numbers, if it has several")
    by: Literal["edges", "quantile", "log2"] = Field(
        "edges",
        description="edges: as listed; quantile: the same, filled in by `elasticctr data buckets`; "
        "log2: at 1, 3, 7, … 2^k - 1, so that bucket k holds what floor(log2(1 + x)) calls k",
    )
    edges: tuple[float, ...] = Field(
        (), max_length=65536, description="ascending, before the slot's transform; a number at an edge is above it"
    )
    count: int = Field(32, ge=2, le=65536, description="buckets that quantile asks for; fewer where values repeat")
    max_values: Literal[1] = Field(1, description="a number falls into one bucket")

    @model_validator(mode="after")
    def _check_edges(self) -> BucketSlot:
        if self.by == "log2" and self.edges:
            raise ValueError(f"slot {self.name!r}: by: log2 knows its edges; leave them out")
        if self.by == "edges" and not self.edges:
            raise ValueError(f"slot {self.name!r}: by: edges needs a list of edges")
        if any(not low < high for low, high in pairwise(self.edges)) or not all(map(isfinite, self.edges)):
            raise ValueError(f"slot {self.name!r}: edges must be finite and ascend")
        return self

    @property
    def bounds(self) -> tuple[float, ...]:
        """The edges, however they are given."""
        return tuple(float(2**k - 1) for k in range(1, 64)) if self.by == "log2" else self.edges


Slot = Annotated[
    Annotated[SparseSlot, Tag("sparse")]
    | Annotated[DenseSlot, Tag("dense")]
    | Annotated[CrossSlot, Tag("cross")]
    | Annotated[BucketSlot, Tag("bucket")],
    tagged_by("kind", default="sparse"),
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
        self._check_targets()
        self._check_derived()
        return self

    def _check_targets(self) -> None:
        pooled = {slot.name: slot for slot in self.sparse if slot.pooling is not Pooling.NONE}
        for slot in self.sparse:
            if slot.target is None:
                continue
            if slot.pooling is not Pooling.NONE:
                raise ValueError(f"slot {slot.name!r}: only a sequence (pooling: none) has a target")
            if slot.target not in pooled:
                raise ValueError(f"slot {slot.name!r}: its target {slot.target!r} is not a pooled sparse slot")
            target = pooled[slot.target]
            if (slot.table, slot.dim) != (target.table, target.dim):
                raise ValueError(f"slot {slot.name!r} and its target {slot.target!r} need the same table and dim")

    def _check_derived(self) -> None:
        numbers = {slot.name: slot for slot in self.dense}
        known = {slot.name for slot in self.sparse}
        for slot in self.derived:
            if isinstance(slot, CrossSlot):
                for part in slot.of:
                    if part not in known:
                        raise ValueError(
                            f"slot {slot.name!r} crosses {part!r}, neither a sparse slot nor a bucket before it"
                        )
                if len(set(slot.of)) < len(slot.of):
                    raise ValueError(f"slot {slot.name!r} crosses a slot with itself")
                continue
            if slot.of not in numbers:
                raise ValueError(f"slot {slot.name!r} is made of {slot.of!r}, which is not a dense slot")
            number = numbers[slot.of]
            if slot.index >= number.dim:
                raise ValueError(
                    f"slot {slot.name!r}: {slot.of!r} has {number.dim} numbers, none with index {slot.index}"
                )
            if number.diff and number.diff[slot.index] < 0:
                raise ValueError(f"slot {slot.name!r}: buckets need a positive diff in {slot.of!r}")
            known.add(slot.name)

    @property
    def sparse(self) -> tuple[SparseSlot, ...]:
        """Sparse slots of the log, as batches number them."""
        return tuple(slot for slot in self.slots if isinstance(slot, SparseSlot))

    @property
    def logged(self) -> tuple[SparseSlot | DenseSlot, ...]:
        """The slots that files and requests hold."""
        return tuple(slot for slot in self.slots if isinstance(slot, SparseSlot | DenseSlot))

    @property
    def bucketed(self) -> frozenset[str]:
        """Dense slots whose missing values are kept apart from zeros, because buckets are made of them."""
        return frozenset(slot.of for slot in self.derived if isinstance(slot, BucketSlot))

    @property
    def derived(self) -> tuple[CrossSlot | BucketSlot, ...]:
        """Slots that are in no file and no batch: made from the others when rows are looked up."""
        return tuple(slot for slot in self.slots if isinstance(slot, CrossSlot | BucketSlot))

    @property
    def embedded(self) -> tuple[RowSlot, ...]:
        """All slots with rows, as lookups number them: those of the log, then derived ones."""
        return (*self.sparse, *self.derived)

    @property
    def dense(self) -> tuple[DenseSlot, ...]:
        return tuple(slot for slot in self.slots if isinstance(slot, DenseSlot))

    @property
    def dense_dim(self) -> int:
        return sum(slot.dim for slot in self.dense)

    def joined(self, format: Format) -> Schema:
        """The same slots in files whose values are feasigns already and whose dense floats are after their transforms,
        as `elasticctr feedback join` writes them."""
        slots: list[Slot] = []
        for slot in self.slots:
            if isinstance(slot, SparseSlot):
                slots.append(slot.model_copy(update={"values": "id"}))
            elif isinstance(slot, DenseSlot):
                slots.append(slot.model_copy(update={"transform": "none", "min": (), "diff": ()}))
            else:
                slots.append(slot)
        return self.model_copy(update={"format": format, "weight": None, "slots": tuple(slots)})

    def fingerprint(self) -> str:
        """Changes with anything that changes parsed samples."""
        values = self.model_dump(mode="json")
        for slot in values["slots"]:
            if slot.get("target") is None:  # settings that older versions lack must not change their fingerprints
                slot.pop("target", None)
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
