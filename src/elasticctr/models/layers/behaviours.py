"""Sequences and their targets, for models with attention: pairs them, cuts them out of the inputs, zeroes padding.

A sequence without a target is averaged, as in every other model, so that every slot is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec, SequenceSpec
from elasticctr.models.layers.features import mean_of


class Behaviour(NamedTuple):
    """One sequence of a batch and its target."""

    query: Tensor  # [B, dim] the target
    keys: Tensor  # [B, max_values, dim], zeros past the length
    mask: Tensor  # [B, max_values], True where there is a value
    lengths: Tensor  # [B] int64


class Pair:
    """Sequences and targets that are concatenated and read as one of each."""

    def __init__(self, spec: InputSpec, sequences: Sequence[str], targets: Sequence[str], model: str) -> None:
        if len(sequences) != len(targets):
            raise ConfigError(
                f"model {model!r}: {len(sequences)} sequences ({', '.join(sequences)}) need as many targets, "
                f"not {len(targets)} ({', '.join(targets)})"
            )
        self.sequences = [find_sequence(spec, name, model) for name in sequences]
        self.columns = [find_columns(spec, name, model) for name in targets]
        for sequence, (start, stop), target in zip(self.sequences, self.columns, targets, strict=True):
            if sequence.dim != stop - start:
                raise ConfigError(
                    f"model {model!r}: sequence {sequence.name!r} is {sequence.dim} wide but its target {target!r} "
                    f"{stop - start}; give both the same table and 'dim' in the schema"
                )
        check_lengths(self.sequences, model)
        self.dim = sum(sequence.dim for sequence in self.sequences)
        self.max_values = self.sequences[0].max_values

    def read(self, inputs: Inputs) -> Behaviour:
        embeddings = inputs.embeddings
        query = [embeddings[:, start:stop] for start, stop in self.columns]
        keys = [read_values(inputs, sequence) for sequence in self.sequences]
        first = inputs.sequences[self.sequences[0].name]
        is_one = len(keys) == 1
        return Behaviour(
            query[0] if is_one else torch.cat(query, dim=1),
            keys[0] if is_one else torch.cat(keys, dim=2),
            first.mask(),
            first.lengths,
        )


class Behaviours:
    """All pairs of a model, and the rest of what its tower reads.

    `wanted` holds names of sequences and of their targets; if empty, the targets of `spec.sequences` are used.
    """

    def __init__(self, spec: InputSpec, wanted: Sequence[tuple[Sequence[str], Sequence[str]]], model: str) -> None:
        wanted = wanted or [((s.name,), (s.target,)) for s in spec.sequences if s.target is not None]
        if not wanted:
            raise ConfigError(
                f"model {model!r} needs a sequence with a target: give a slot 'pooling: none' and 'target: SLOT' in "
                "the schema, or set model.attention"
            )
        self.pairs = [Pair(spec, sequences, targets, model) for sequences, targets in wanted]
        self.rest = list(spec.sequences)
        for pair in self.pairs:
            self.leave_out(sequence.name for sequence in pair.sequences)

    def leave_out(self, names: Iterable[str]) -> None:
        """Excludes sequences that are read elsewhere from averaging."""
        read = frozenset(names)
        self.rest = [sequence for sequence in self.rest if sequence.name not in read]

    def width(self, spec: InputSpec) -> int:
        """Columns of `others`."""
        return spec.embedding_width + spec.dense_dim + sum(sequence.dim for sequence in self.rest)

    def others(self, inputs: Inputs) -> list[Tensor]:
        """Pooled embeddings (targets too), dense floats and means of sequences without a target."""
        return [inputs.deep, *(mean_of(inputs.sequences[sequence.name]) for sequence in self.rest)]


def read_values(inputs: Inputs, sequence: SequenceSpec) -> Tensor:
    """[B, max_values, dim], zeroed past the length."""
    held = inputs.sequences[sequence.name]
    return held.values.masked_fill(~held.mask().unsqueeze(2), 0.0)


def find_sequence(spec: InputSpec, name: str, model: str) -> SequenceSpec:
    for sequence in spec.sequences:
        if sequence.name == name:
            return sequence
    there = ", ".join(sequence.name for sequence in spec.sequences) or "none"
    raise ConfigError(
        f"model {model!r}: {name!r} is not a sequence; known: {there}. A sequence is a slot with pooling: none"
    )


def find_columns(spec: InputSpec, name: str, model: str) -> tuple[int, int]:
    """The columns of a pooled slot's embedding in `inputs.embeddings`."""
    start = 0
    for slot, dim in zip(spec.slots, spec.dims, strict=True):
        if slot == name and dim > 0:
            return start, start + dim
        start += dim
    raise ConfigError(
        f"model {model!r}: the target {name!r} is not a pooled slot with an embedding; known: "
        f"{', '.join(spec.embedded_slots) or 'none'}"
    )


def check_lengths(sequences: Sequence[SequenceSpec], model: str) -> None:
    """Raises unless sequences that are read together keep the same number of values."""
    if len({sequence.max_values for sequence in sequences}) > 1:
        shown = ", ".join(f"{sequence.name}: {sequence.max_values}" for sequence in sequences)
        raise ConfigError(f"model {model!r}: sequences read together need equal max_values in the schema; got {shown}")
