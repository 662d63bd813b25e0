"""schema.json: what a server without torch needs to turn a sample into lookups and the dense graph's inputs.

A slot's values are hashed or parsed as `samples` says, cut to `max_values`, looked up in `table` and pooled; the floats
`row` … `row + dim` of each piece go to columns `column` … `column + dim` of the input `pooled`, those of a sequence to
its own input. docs/formats/version.md is the specification.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from elasticctr.data.schema import Schema
from elasticctr.errors import Corruption

SCHEMA = "schema.json"
FORMAT = 1
MAX_DIM = 1 << 16
MAX_SEQUENCE = 100_000


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class RowPart(_Part):
    """A range of a row's floats and where they go."""

    segment: str
    row: int = Field(ge=0)
    dim: int = Field(ge=1, le=MAX_DIM)
    column: int = Field(ge=0)


class PooledSlot(_Part):
    slot: str
    number: int = Field(ge=0)  # among the slots of the sample schema that have rows: sparse ones, then derived ones
    table: str
    pooling: Literal["sum", "mean"]
    max_values: int  # the first ones are kept
    pieces: tuple[RowPart, ...]
    oov: int | None = None  # values without a row read as this feasign's; none: as zeros


class SequenceSlot(_Part):
    slot: str
    number: int = Field(ge=0)
    table: str
    input: str
    lengths: str
    row: int = Field(ge=0)  # first float of a row that is used
    dim: int = Field(ge=1, le=MAX_DIM)
    max_values: int = Field(le=MAX_SEQUENCE)  # the last ones are kept; zeros after them
    oov: int | None = None


class DenseColumns(_Part):
    slot: str
    column: int
    dim: int = Field(ge=1, le=MAX_DIM)


class FeatureHash(_Part):
    name: Literal["xxh64"] = "xxh64"
    seed: int


class TableSchema(_Part):
    dim: int = Field(ge=1, le=MAX_DIM)
    missing: Literal["zeros"] = "zeros"


class ServingSchema(_Part):
    format: int = FORMAT
    network: str  # the kind of model: deepfm, …
    fingerprint: str  # of the sample schema
    feature_hash: FeatureHash
    samples: Schema
    labels: tuple[str, ...]
    pooled_width: int  # of the input `pooled`; 0: there is none
    dense_width: int  # of the input `dense`; 0: there is none
    pooled: tuple[PooledSlot, ...]
    sequences: tuple[SequenceSlot, ...]
    dense: tuple[DenseColumns, ...]
    tables: dict[str, TableSchema]

    @model_validator(mode="after")
    def _check_widths(self) -> ServingSchema:
        """Servers reserve memory by these numbers, so an input must not be wider than what goes into it."""
        pooled = sum(piece.dim for slot in self.pooled for piece in slot.pieces)
        dense = sum(slot.dim for slot in self.dense)
        for name, width, most in ("pooled", self.pooled_width, pooled), ("dense", self.dense_width, dense):
            if not 0 <= width <= most:
                raise ValueError(f"{name}_width is {width}, but only {most} columns are used; publish again")
        return self


def parse_serving_schema(data: bytes, where: str) -> ServingSchema:
    try:
        return ServingSchema.model_validate_json(data)
    except ValidationError as e:
        first = e.errors()[0]
        raise Corruption(f"{where}: {'.'.join(str(p) for p in first['loc'])}: {first['msg']}") from None
