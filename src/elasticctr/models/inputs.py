"""A model's inputs: one flat tensor whose column ranges are the pooled embeddings and the dense floats.

Columns of `flat`: [linear weights of the pooled slots that have one] [embeddings, slot after slot] [dense]. Keeping
them side by side lets a tower read embeddings and dense floats without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from elasticctr.models.columns import Columns, is_recorded, read_columns


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """An unpooled slot: `max_values` rows of `dim` per sample, zero-padded at the end."""

    name: str
    dim: int
    max_values: int
    target: str | None = None  # the pooled slot that the sequence is compared with; same table


@dataclass(frozen=True, slots=True)
class InputSpec:
    """The shape of a model's inputs, known before the first sample."""

    slots: tuple[str, ...]  # pooled sparse slots
    dims: tuple[int, ...]  # embedding width of each; 0: only a linear weight
    dense_dim: int = 0
    linear: bool = False  # each pooled slot has one linear weight, not only those of width 0
    sequences: tuple[SequenceSpec, ...] = ()
    labels: int = 1

    @property
    def linear_slots(self) -> tuple[str, ...]:
        """Pooled slots that have a linear weight, in their order."""
        return tuple(slot for slot, dim in zip(self.slots, self.dims, strict=True) if self.linear or dim == 0)

    @property
    def embedded_slots(self) -> tuple[str, ...]:
        """Pooled slots that have an embedding, in their order."""
        return tuple(slot for slot, dim in zip(self.slots, self.dims, strict=True) if dim > 0)

    @property
    def linear_width(self) -> int:
        return len(self.linear_slots)

    @property
    def embedding_width(self) -> int:
        return sum(self.dims)

    @property
    def pooled_width(self) -> int:
        return self.linear_width + self.embedding_width

    @property
    def width(self) -> int:
        return self.pooled_width + self.dense_dim

    @property
    def dim(self) -> int:
        """The common width of embeddings. Raises ValueError if slots differ."""
        widths = {dim for dim in self.dims if dim > 0}
        if len(widths) != 1:
            raise ValueError(f"this model needs one embedding width for all slots, but the schema has {sorted(widths)}")
        return widths.pop()


@dataclass(frozen=True, slots=True)
class Sequence:
    values: Tensor  # [B, max_values, dim], zeros past the length
    lengths: Tensor  # [B] int64

    def mask(self) -> Tensor:
        """[B, max_values], True where there is a value."""
        return torch.arange(self.values.shape[1], device=self.values.device)[None, :] < self.lengths[:, None]


@dataclass(frozen=True, slots=True)
class Inputs:
    """One batch, as a model sees it. B samples, P pooled slots with an embedding, K the embedding width."""

    spec: InputSpec
    flat: Tensor  # [B, spec.width]
    sequences: dict[str, Sequence] = field(default_factory=dict)
    _columns: list[Columns] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def linear(self) -> Tensor:
        """[B, spec.linear_width] pooled linear weights of spec.linear_slots."""
        return self._read().linear

    @property
    def embeddings(self) -> Tensor:
        """[B, sum of widths] pooled embeddings side by side."""
        return self._read().embeddings

    @property
    def pooled(self) -> Tensor:
        """[B, P, K] pooled embeddings of slots of one width."""
        return self.embeddings.reshape(self.flat.shape[0], len(self.spec.embedded_slots), self.spec.dim)

    @property
    def dense(self) -> Tensor:
        """[B, dense_dim]"""
        return self._read().dense

    @property
    def deep(self) -> Tensor:
        """[B, embeddings + dense] in one piece, as a tower reads it."""
        return self._read().deep

    def to(self, device: torch.device) -> Inputs:
        """A copy on another device, whose gradients arrive at these inputs."""
        sequences = {
            name: Sequence(sequence.values.to(device), sequence.lengths.to(device))
            for name, sequence in self.sequences.items()
        }
        return Inputs(self.spec, self.flat.to(device), sequences)

    def _read(self) -> Columns:
        # Kept only while recording: a later pass that needs gradients must not find views made without them.
        if self._columns and is_recorded(self.flat):
            return self._columns[0]
        columns = read_columns(self.flat, self.spec.linear_width, self.spec.pooled_width)
        if is_recorded(self.flat):
            self._columns.append(columns)
        return columns
