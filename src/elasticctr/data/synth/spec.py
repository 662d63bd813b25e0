"""What a synthetic log looks like: its schema, the number of values per slot, and the strength of its signal."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, model_validator

from elasticctr.config import Settings
from elasticctr.data.schema import DenseSlot, Format, Pooling, Schema, SparseSlot
from elasticctr.errors import ConfigError

# Different values per slot of the Criteo Kaggle (Display Advertising Challenge) and Avazu training sets.
CRITEO_CARDINALITIES = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
_AVAZU_TEXT = """hour 24, C1 7, banner_pos 7, site_id 4737, site_domain 7745, site_category 26, app_id 8552,
app_domain 559, app_category 36, device_id 2686408, device_ip 6729486, device_model 8251, device_type 5,
device_conn_type 4, C14 2626, C15 8, C16 9, C17 435, C18 4, C19 68, C20 172, C21 60"""
AVAZU_CARDINALITIES = {name: int(count) for name, count in (part.split() for part in _AVAZU_TEXT.split(","))}


class Shape(StrEnum):
    CRITEO = "criteo"
    AVAZU = "avazu"
    HISTORY = "history"
    CONVERSIONS = "conversions"


# Few enough values for a million rows to teach all of them, as a shape that tells models apart must have.
HISTORY_CARDINALITIES = {"user": 2000, "item": 500, "city": 100, "device": 20, "hour": 24}
_CONVERSION_CARDINALITIES = (1000, 500, 200, 100, 50, 24, 12, 7)


class SynthSpec(Settings):
    """Everything that determines a synthetic log except its length and its files."""

    schema_: Schema
    cardinalities: tuple[int, ...] = Field(description="different values of each sparse slot")
    multi: tuple[bool, ...] = Field(description="whether each sparse slot is multi-valued")
    zipf: float = Field(1.05, ge=0, le=4, description="exponent of the frequency of ids; 0: all equally frequent")
    values_mean: float = Field(3.0, ge=1, le=100, description="values per sample of a multi-valued slot, on average")
    ctr: float = Field(0.25, gt=0, lt=1, description="share of clicks")
    conversion: float = Field(0.2, gt=0, lt=1, description="share of each later label where the one before is 1")
    auc: float = Field(0.82, gt=0.5, lt=0.999, description="best attainable AUC aimed at")
    missing: float = Field(0.05, ge=0, lt=0.5, description="share of missing values")
    interactions: int = Field(4, ge=0, le=64, description="pairs of slots that act together")
    transformed: bool = Field(False, description="dense values are written after their transform")
    id_space: int = Field(0, ge=0, lt=1 << 63, description="feasigns are taken modulo this; 0: all 64 bits")
    seed: int = Field(0, ge=0, lt=1 << 63)

    @model_validator(mode="after")
    def _check_lengths(self) -> SynthSpec:
        slots = len(self.schema_.sparse)
        if len(self.cardinalities) != slots or len(self.multi) != slots:
            raise ValueError(f"{slots} sparse slots need as many cardinalities and multi flags")
        if any(c < 1 or c > 1 << 32 for c in self.cardinalities):
            raise ValueError("a cardinality is 1 to 4294967296")
        for sequence, target in self.histories:
            if self.cardinalities[sequence] != self.cardinalities[target]:
                raise ValueError(f"slot {self.schema_.sparse[sequence].name!r} has the values of its target: as many")
            if not self.multi[sequence] or self.multi[target]:
                raise ValueError(f"slot {self.schema_.sparse[sequence].name!r} has several values, its target one")
        return self

    @property
    def histories(self) -> tuple[tuple[int, int], ...]:
        """Places of each sequence that has a target, and of that target, among the sparse slots."""
        names = [slot.name for slot in self.schema_.sparse]
        return tuple((s, names.index(slot.target)) for s, slot in enumerate(self.schema_.sparse) if slot.target)

    @property
    def written_schema(self) -> Schema:
        """The schema to read the files with."""
        slots = self.schema_.slots
        if self.transformed:
            plain = {"transform": "none", "min": (), "diff": ()}
            slots = tuple(s.model_copy(update=plain) if isinstance(s, DenseSlot) else s for s in slots)
        if self.is_merged:
            slots = (*(s for s in slots if isinstance(s, DenseSlot)), SparseSlot(name="features"))
        return self.schema_.model_copy(update={"slots": slots})

    @property
    def is_merged(self) -> bool:
        """Whether all sparse slots are written as one, as libsvm has no more."""
        return self.schema_.format is Format.LIBSVM and len(self.schema_.sparse) > 1

    @property
    def hex_slots(self) -> tuple[bool, ...]:
        """Whether each sparse slot holds strings (8 hex digits, hashed when parsed) instead of feasigns."""
        if self.schema_.format is Format.LIBSVM:
            return (False,) * len(self.schema_.sparse)
        criteo = self.schema_.format is Format.CRITEO
        return tuple(slot.values == "string" or (criteo and slot.values == "auto") for slot in self.schema_.sparse)


def criteo_spec(format: Format, slots: int = 26, dense: int = 13, cardinalities: tuple[int, ...] = ()) -> SynthSpec:
    """Criteo's shape under the names PaddleRec gives it. `cardinalities` repeats over the slots if it is shorter."""
    given = cardinalities or CRITEO_CARDINALITIES
    names = [str(i + 1) for i in range(slots)]
    if format in (Format.CSV, Format.PARQUET):
        dense_slots = [DenseSlot(name=f"I{i + 1}", transform="log1p") for i in range(dense)]
    else:
        dense_slots = [DenseSlot(name="dense_feature", dim=dense, transform="log1p")] if dense else []
    schema = Schema(format=format, slots=(*dense_slots, *(_sparse(name, format) for name in names)))
    return SynthSpec(
        schema_=schema,
        cardinalities=tuple(given[i % len(given)] for i in range(slots)),
        multi=(False,) * slots,
        # PaddleRec's slot files hold dense values that are transformed already; raw files leave it to the parser.
        transformed=format not in (Format.CRITEO, Format.CSV, Format.PARQUET),
    )


def avazu_spec(format: Format) -> SynthSpec:
    """Avazu's shape: 22 slots, nothing dense, fewer clicks."""
    if format is Format.CRITEO:
        raise ConfigError("shape avazu does not fit the criteo format, which is 13 numbers and 26 strings")
    schema = Schema(format=format, slots=tuple(_sparse(name, format) for name in AVAZU_CARDINALITIES))
    cardinalities = tuple(AVAZU_CARDINALITIES.values())
    spec = SynthSpec(schema_=schema, cardinalities=cardinalities, multi=(False,) * len(cardinalities))
    return spec.model_copy(update={"ctr": 0.17})


def history_spec(format: Format) -> SynthSpec:
    """Five slots and a history of items: a user with the shown item in it clicks more often."""
    _refuse(Shape.HISTORY, format, Format.CRITEO, Format.LIBSVM)
    slots = [_sparse(name, format) for name in HISTORY_CARDINALITIES]
    history = _sparse("history", format).model_copy(update={"pooling": Pooling.NONE, "max_values": 20})
    history = history.model_copy(update={"target": "item", "separator": "|" if format is Format.CSV else None})
    cardinalities = (*HISTORY_CARDINALITIES.values(), HISTORY_CARDINALITIES["item"])
    schema, multi = Schema(format=format, slots=(*slots, history)), (False,) * len(slots) + (True,)
    return SynthSpec(schema_=schema, cardinalities=cardinalities, multi=multi, values_mean=10.0, interactions=0)


def conversions_spec(format: Format) -> SynthSpec:
    """Eight slots, four numbers and two labels: a click, and a conversion after it."""
    _refuse(Shape.CONVERSIONS, format, Format.CRITEO, Format.FEASIGN, Format.LIBSVM, Format.LIBFFM)
    slots = tuple(_sparse(f"C{i + 1}", format) for i in range(len(_CONVERSION_CARDINALITIES)))
    dense = tuple(DenseSlot(name=f"I{i + 1}", transform="log1p") for i in range(4))
    schema = Schema(format=format, label=("click", "conversion"), slots=(*dense, *slots))
    multi = (False,) * len(slots)
    return SynthSpec(
        schema_=schema,
        cardinalities=_CONVERSION_CARDINALITIES,
        multi=multi,
        transformed=format not in (Format.CSV, Format.PARQUET),
        interactions=0,
    )


def _refuse(shape: Shape, format: Format, *unfit: Format) -> None:
    if format in unfit:
        raise ConfigError(f"shape {shape} does not fit the {format} format; use slot, csv or parquet")


def schema_spec(schema: Schema, cardinality: int) -> SynthSpec:
    """Any schema: slots that are averaged, kept as sequences or split by a separator get several values."""
    multi = tuple(slot.pooling is not Pooling.SUM or slot.separator is not None for slot in schema.sparse)
    return SynthSpec(schema_=schema, cardinalities=(cardinality,) * len(multi), multi=multi)


def _sparse(name: str, format: Format) -> SparseSlot:
    return SparseSlot(name=name, values="id" if format in (Format.CSV, Format.PARQUET) else "auto")
