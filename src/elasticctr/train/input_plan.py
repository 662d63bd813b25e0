"""Which tables a model's slots live in, and how rows of a batch become its inputs, wherever the rows are.

Slots that name the same table and have the same width share one table. A row holds a linear weight, if the model wants
one, and an embedding.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elasticctr._native import FeasignSet
from elasticctr.data.batch import Batch
from elasticctr.data.derive import Bags, Deriver
from elasticctr.data.schema import Pooling, RowSlot, Schema, SparseSlot
from elasticctr.data.vocabulary import Replacer, Vocabulary, oov_feasign
from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec, Sequence, SequenceSpec
from elasticctr.models.model import InputNeeds
from elasticctr.table import Layout, Lookup, SegmentSettings, SlotTarget, TableSettings, make_layout
from elasticctr.train.job import SparseSettings
from elasticctr.train.reading import PreparedBatch

_MAX_WIDTH = 65536  # floats of an embedding


def make_input_spec(schema: Schema, needs: InputNeeds) -> InputSpec:
    """The inputs that samples of this schema give a model with these needs."""
    pooled = [slot for slot in schema.embedded if slot.pooling is not Pooling.NONE]
    linear_only = _check_slots(needs.linear_only or (), [slot.name for slot in pooled])
    sequences = [slot for slot in schema.embedded if slot.pooling is Pooling.NONE]
    if sequences and needs.dim == 0:
        raise ConfigError(
            f"slot {sequences[0].name!r} is kept as a sequence (pooling: none), and this model has no embeddings; "
            "give the slot a pooling or take another model"
        )
    widths = {slot.name: 0 if slot.name in linear_only else _width(slot, needs) for slot in schema.embedded}
    vectors = needs.vectors(sum(width > 0 for width in widths.values()), schema.dense_dim)
    widest = max(widths, key=lambda name: widths[name], default="")
    if widths and vectors * widths[widest] > _MAX_WIDTH:
        raise ConfigError(
            f"slot {widest!r} would have rows of {vectors} vectors of {widths[widest]} floats, more than {_MAX_WIDTH} "
            "in all; make model.dim smaller"
        )
    return InputSpec(
        slots=tuple(slot.name for slot in pooled),
        dims=tuple(vectors * widths[slot.name] for slot in pooled),
        dense_dim=schema.dense_dim,
        linear=needs.linear,
        sequences=tuple(
            SequenceSpec(slot.name, vectors * widths[slot.name], slot.max_values, _target(slot, pooled, widths))
            for slot in sequences
        ),
        labels=len(schema.label),
    )


def _width(slot: RowSlot, needs: InputNeeds) -> int:
    if needs.dim == 0:
        return 0
    return needs.dim if slot.dim is None else slot.dim


def _target(sequence: RowSlot, pooled: list[RowSlot], widths: Mapping[str, int]) -> str | None:
    """The schema's, or else the only pooled slot with rows in the same table."""
    if isinstance(sequence, SparseSlot) and sequence.target is not None:
        return sequence.target
    place = (sequence.table, widths[sequence.name])
    same = [slot.name for slot in pooled if (slot.table, widths[slot.name]) == place]
    return same[0] if len(same) == 1 else None


def _check_slots(names: tuple[str, ...], pooled: list[str]) -> frozenset[str]:
    for name in names:
        if name not in pooled:
            close = difflib.get_close_matches(name, pooled, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(pooled) or 'none'}"
            raise ConfigError(f"model: {name!r}, to be read by linear weights only, is not a pooled slot; {hint}")
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """Which table a sparse slot's rows live in, and where they go in the model's inputs."""

    slot: RowSlot
    number: int  # among the slots with rows, Schema.embedded
    table: int  # among the tables
    columns: Mapping[str, int]  # segment -> first column of `Inputs.flat`; empty for a sequence
    sequence: SequenceSpec | None


@dataclass(frozen=True, slots=True)
class TablePlan:
    """One table and the slots in it."""

    settings: TableSettings
    layout: Layout
    has_pooled: bool  # the flat tensor is its first array
    sequences: tuple[tuple[SequenceSpec, int], ...]  # and these its further ones; with the slot's place in lookups


class InputPlan:
    """All tables of a model. `look_up` may run on another thread than the rest."""

    def __init__(self, schema: Schema, spec: InputSpec, settings: SparseSettings, *, seed: int) -> None:
        self.spec = spec
        self._schema = schema
        self._deriver = Deriver(schema)
        self._replacer: Replacer | None = None
        # Of each slot with rows: the feasign that stands for values outside the vocabulary, if there is one.
        self.oov: tuple[int | None, ...] = tuple(
            None if settings.vocabulary is None else oov_feasign(slot.name, schema.hash_seed)
            for slot in schema.embedded
        )
        self.slots: list[SlotPlan] = []
        self.tables: list[TablePlan] = []
        columns = dict(zip(spec.slots, _columns(spec), strict=True))
        sequences = {sequence.name: sequence for sequence in spec.sequences}
        dims = dict(zip(spec.slots, spec.dims, strict=True)) | {s.name: s.dim for s in spec.sequences}
        members: dict[tuple[str, int], list[tuple[int, RowSlot]]] = {}
        for number, slot in enumerate(schema.embedded):
            members.setdefault((slot.table, dims[slot.name]), []).append((number, slot))
        widths = [table for table, _ in members]
        for table, ((name, dim), slots) in enumerate(members.items()):
            table_settings = TableSettings(
                name=name if widths.count(name) == 1 else f"{name}.{dim}",
                segments=_segments(spec, dim, settings),
                admission=settings.admission,
                seed=seed,
            )
            has_pooled = any(slot.name in columns for _, slot in slots)
            targets: list[SlotTarget] = []
            held: list[tuple[SequenceSpec, int]] = []
            for place, (number, slot) in enumerate(slots):
                self.slots.append(SlotPlan(slot, number, table, columns.get(slot.name, {}), sequences.get(slot.name)))
                if slot.name in columns:
                    is_mean = slot.pooling is Pooling.MEAN
                    targets.append(SlotTarget(number, columns[slot.name], "mean" if is_mean else "sum"))
                else:
                    sequence = sequences[slot.name]
                    target = len(held) + has_pooled
                    targets.append(SlotTarget(number, {"embedding": 0}, "last", target, sequence.max_values))
                    held.append((sequence, place))
            layout = make_layout(table_settings, targets)
            self.tables.append(TablePlan(table_settings, layout, has_pooled, tuple(held)))

    def look_up(self, batch: Batch) -> tuple[Lookup, ...]:
        values, offsets = self.bags(batch)
        return tuple(table.layout.lookup(values, offsets, len(batch)) for table in self.tables)

    def use(self, vocabulary: Vocabulary) -> None:
        """From here on values outside the vocabulary are looked up as their slot's own feasign for such."""
        self._replacer = Replacer(self._schema, vocabulary)

    def bags(self, batch: Batch) -> Bags:
        """The values that are looked up, of all slots with rows, laid out as a batch's."""
        bags = self._deriver.bags(batch)
        return bags if self._replacer is None else self._replacer.replace(bags, len(batch))

    def look_up_known(self, batch: Batch, table: int, lookup: Lookup, found: NDArray[np.bool_]) -> Lookup:
        """The lookup in which values without a row, by `found` of its distinct feasigns, are their slot's own."""
        values, offsets = self.bags(batch)
        values, n = values.copy(), len(batch)
        known = FeasignSet(lookup.feasigns[found])
        for slot in self.slots:
            oov = self.oov[slot.number]
            if slot.table == table and oov is not None:
                known.replace(values, int(offsets[slot.number * n]), int(offsets[(slot.number + 1) * n]), oov)
        return self.tables[table].layout.lookup(values, offsets, n)

    def make_inputs(self, item: PreparedBatch) -> tuple[Inputs, list[list[Tensor]]]:
        """Inputs of a batch without its rows, and the arrays that the rows of each table are to be pooled into."""
        batch, spec = item.batch, self.spec
        flat = torch.empty(len(batch), spec.width)
        if spec.dense_dim:
            flat[:, spec.pooled_width :] = torch.from_numpy(batch.dense)
        sequences: dict[str, Sequence] = {}
        arrays = []
        for table, lookup in zip(self.tables, item.lookups, strict=True):
            targets = [flat] if table.has_pooled else []
            for sequence, place in table.sequences:
                values = torch.empty(len(batch), sequence.max_values, sequence.dim)
                lengths = torch.from_numpy(lookup.lengths(place, sequence.max_values))
                sequences[sequence.name] = Sequence(values, lengths)
                targets.append(values)
            arrays.append(targets)
        return Inputs(spec, flat, sequences), arrays

    def gradients(self, inputs: Inputs) -> list[list[Tensor]]:
        """What the inputs collected, by table, in the arrays of `make_inputs`."""
        flat = _gradient(inputs.flat)
        return [
            ([flat] if table.has_pooled else [])
            + [_gradient(inputs.sequences[sequence.name].values) for sequence, _ in table.sequences]
            for table in self.tables
        ]


def require_gradients(inputs: Inputs) -> None:
    """From here on the inputs collect gradients: after their rows are in place."""
    inputs.flat.requires_grad_()
    for pulled in inputs.sequences.values():
        pulled.values.requires_grad_()


def _gradient(tensor: Tensor) -> Tensor:
    # A model that reads only some of its inputs leaves no gradient on the others.
    return torch.zeros_like(tensor, requires_grad=False) if tensor.grad is None else tensor.grad


def _columns(spec: InputSpec) -> list[dict[str, int]]:
    """The columns of `Inputs.flat` where each pooled slot's segments start."""
    columns = []
    start = spec.linear_width
    places = {slot: place for place, slot in enumerate(spec.linear_slots)}
    for slot, dim in zip(spec.slots, spec.dims, strict=True):
        linear = {"linear": places[slot]} if slot in places else {}
        columns.append(linear | ({"embedding": start} if dim else {}))
        start += dim
    return columns


def _segments(spec: InputSpec, dim: int, settings: SparseSettings) -> tuple[SegmentSettings, ...]:
    segments = []
    if spec.linear or dim == 0:
        optimizer = settings.linear_optimizer or settings.optimizer
        segments.append(
            SegmentSettings(name="linear", dim=1, optimizer=optimizer, initializer=settings.linear_initializer)
        )
    if dim:
        segments.append(
            SegmentSettings(name="embedding", dim=dim, optimizer=settings.optimizer, initializer=settings.initializer)
        )
    return tuple(segments)
