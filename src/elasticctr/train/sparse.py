"""The sparse side of a model: which table each slot's rows live in, and how rows become the model's inputs.

Slots that name the same table and have the same width share one native table. A row holds a linear weight, if the
model wants one, and an embedding.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from elasticctr.data.batch import Batch
from elasticctr.data.schema import Pooling, Schema, SparseSlot
from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec, Sequence, SequenceSpec
from elasticctr.models.model import InputNeeds
from elasticctr.table import Layout, Lookup, Mark, SegmentSettings, SlotTarget, Table, TableSettings
from elasticctr.train.checkpoint import Checkpoint
from elasticctr.train.job import SparseSettings
from elasticctr.train.reading import Item

_SECONDS_PER_DAY = 86400
_MARKS = "marks.json"


def make_input_spec(schema: Schema, needs: InputNeeds) -> InputSpec:
    """What a model with these needs is given of samples of this schema."""
    pooled = [slot for slot in schema.sparse if slot.pooling is not Pooling.NONE]
    sequences = [slot for slot in schema.sparse if slot.pooling is Pooling.NONE]
    if sequences and needs.dim == 0:
        raise ConfigError(
            f"slot {sequences[0].name!r} is kept as a sequence (pooling: none), and this model has no embeddings; "
            "give the slot a pooling or take another model"
        )
    return InputSpec(
        slots=tuple(slot.name for slot in pooled),
        dims=tuple(_width(slot, needs) for slot in pooled),
        dense_dim=schema.dense_dim,
        linear=needs.linear,
        sequences=tuple(SequenceSpec(slot.name, _width(slot, needs), slot.max_values) for slot in sequences),
        labels=len(schema.label),
    )


def _width(slot: SparseSlot, needs: InputNeeds) -> int:
    return 0 if needs.dim == 0 else slot.dim or needs.dim


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """Where a sparse slot's rows live, and where they go in the model's inputs."""

    slot: SparseSlot
    number: int  # among the sparse slots
    table: Table
    columns: Mapping[str, int]  # segment -> first column of `Inputs.flat`; empty for a sequence
    sequence: SequenceSpec | None


@dataclass(frozen=True, slots=True)
class _Group:
    """The slots of one table."""

    table: Table
    layout: Layout
    has_pooled: bool  # the flat tensor is its first array
    sequences: tuple[tuple[SequenceSpec, int], ...]  # and these its further ones; with the slot's place in lookups


class SparseInputs:
    """All tables of a model. `look_up` may run on another thread than the rest."""

    def __init__(self, schema: Schema, spec: InputSpec, settings: SparseSettings, *, seed: int) -> None:
        self.spec = spec
        self.marks: dict[str, Mark] = {}  # of each table, when it was last marked, saved or loaded
        self.places: list[SlotPlace] = []
        self._groups: list[_Group] = []
        columns = dict(zip(spec.slots, _columns(spec), strict=True))
        sequences = {sequence.name: sequence for sequence in spec.sequences}
        dims = dict(zip(spec.slots, spec.dims, strict=True)) | {s.name: s.dim for s in spec.sequences}
        members: dict[tuple[str, int], list[tuple[int, SparseSlot]]] = {}
        for number, slot in enumerate(schema.sparse):
            members.setdefault((slot.table, dims[slot.name]), []).append((number, slot))
        widths = [table for table, _ in members]
        for (name, dim), slots in members.items():
            table = Table(
                TableSettings(
                    name=name if widths.count(name) == 1 else f"{name}.{dim}",
                    segments=_segments(spec, dim, settings),
                    admission=settings.admission,
                    seed=seed,
                )
            )
            has_pooled = any(slot.name in columns for _, slot in slots)
            targets: list[SlotTarget] = []
            held: list[tuple[SequenceSpec, int]] = []
            for place, (number, slot) in enumerate(slots):
                self.places.append(SlotPlace(slot, number, table, columns.get(slot.name, {}), sequences.get(slot.name)))
                if slot.name in columns:
                    is_mean = slot.pooling is Pooling.MEAN
                    targets.append(SlotTarget(number, columns[slot.name], "mean" if is_mean else "sum"))
                else:
                    sequence = sequences[slot.name]
                    target = len(held) + has_pooled
                    targets.append(SlotTarget(number, {"embedding": 0}, "last", target, sequence.max_values))
                    held.append((sequence, place))
            self._groups.append(_Group(table, table.layout(targets), has_pooled, tuple(held)))

    @property
    def tables(self) -> list[Table]:
        return [group.table for group in self._groups]

    def look_up(self, batch: Batch) -> tuple[Lookup, ...]:
        return tuple(group.layout.lookup(batch.values, batch.offsets, len(batch)) for group in self._groups)

    def pull(self, item: Item, *, train: bool) -> Inputs:
        """The model's inputs for a batch. With `train`, new feasigns get rows and the tensors collect gradients."""
        batch, spec = item.batch, self.spec
        flat = torch.empty(len(batch), spec.width)
        if spec.dense_dim:
            flat[:, spec.pooled_width :] = torch.from_numpy(batch.dense)
        sequences: dict[str, Sequence] = {}
        for group, lookup in zip(self._groups, item.lookups, strict=True):
            group.table.find(lookup, insert=train)
            targets = [flat] if group.has_pooled else []
            for sequence, place in group.sequences:
                values = torch.empty(len(batch), sequence.max_values, sequence.dim)
                lengths = torch.from_numpy(lookup.lengths(place, sequence.max_values))
                sequences[sequence.name] = Sequence(values, lengths)
                targets.append(values)
            group.table.pull(lookup, group.layout, targets)
        if train:
            flat.requires_grad_()
            for pulled in sequences.values():
                pulled.values.requires_grad_()
        return Inputs(spec, flat, sequences)

    def push(self, item: Item, inputs: Inputs, rate_scale: float) -> None:
        """Steps the rows of a batch by the gradients its inputs collected."""
        batch = item.batch
        today = int(time.time()) // _SECONDS_PER_DAY
        for group, lookup in zip(self._groups, item.lookups, strict=True):
            gradients = [_gradient(inputs.flat)] if group.has_pooled else []
            gradients += [_gradient(inputs.sequences[sequence.name].values) for sequence, _ in group.sequences]
            group.table.push(
                lookup, group.layout, gradients, batch.labels[:, 0], batch.shows, now=today, rate_scale=rate_scale
            )

    def mark(self) -> dict[str, Mark]:
        """Marks this moment in every table, so that what changes from here on can be told."""
        self.marks = {table.settings.name: table.mark() for table in self.tables}
        return self.marks

    def save(self, directory: Path) -> None:
        """Marks the tables and writes them: a version published from these files can be a delta's parent."""
        marks = self.mark()
        for table in self.tables:
            table.save(directory / f"{table.settings.name}.table")
        text = json.dumps({name: str(mark) for name, mark in marks.items()})
        (directory / _MARKS).write_text(text, encoding="utf-8")

    def load(self, checkpoint: Checkpoint) -> None:
        for table in self.tables:
            table.load(checkpoint.table(table.settings.name))
        # Checkpoints of older versions have none.
        path = checkpoint.path / _MARKS
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.marks = {name: Mark.parse(text) for name, text in found.items()}


def _gradient(tensor: Tensor) -> Tensor:
    # A model that reads only some of its inputs leaves no gradient on the others.
    return torch.zeros_like(tensor, requires_grad=False) if tensor.grad is None else tensor.grad


def _columns(spec: InputSpec) -> list[dict[str, int]]:
    """The columns of `Inputs.flat` where each pooled slot's segments start."""
    columns = []
    start = spec.linear_width
    for place, dim in enumerate(spec.dims):
        linear = {"linear": place} if spec.linear else {}
        columns.append(linear | ({"embedding": start} if dim else {}))
        start += dim
    return columns


def _segments(spec: InputSpec, dim: int, settings: SparseSettings) -> tuple[SegmentSettings, ...]:
    segments = []
    if spec.linear:
        optimizer = settings.linear_optimizer or settings.optimizer
        segments.append(
            SegmentSettings(name="linear", dim=1, optimizer=optimizer, initializer=settings.linear_initializer)
        )
    if dim:
        segments.append(
            SegmentSettings(name="embedding", dim=dim, optimizer=settings.optimizer, initializer=settings.initializer)
        )
    return tuple(segments)
