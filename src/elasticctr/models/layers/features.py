"""Turns slots into features, including sequence slots into embeddings, so that a model built from these functions uses
every slot.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec, Sequence


def mean_of(sequence: Sequence) -> Tensor:
    """[B, dim] mean of the values of each sample; zeros for a sample without values."""
    kept = sequence.values * sequence.mask().unsqueeze(2).to(sequence.values.dtype)
    count = sequence.lengths.clamp(min=1, max=sequence.values.shape[1]).to(kept.dtype)
    return kept.sum(dim=1) / count.unsqueeze(1)


def deep_width(spec: InputSpec) -> int:
    """Columns of `deep_features`."""
    width = spec.embedding_width + spec.dense_dim + sum(s.dim for s in spec.sequences)
    if width == 0:
        raise ConfigError("the model has no inputs: the schema has neither sparse nor dense slots for it")
    return width


def deep_features(inputs: Inputs) -> Tensor:
    """[B, deep_width] pooled embeddings, dense floats, means of sequences. A view if there are no sequences."""
    if not inputs.spec.sequences:
        return inputs.deep
    return torch.cat([inputs.deep, *(mean_of(inputs.sequences[s.name]) for s in inputs.spec.sequences)], dim=1)


def field_dim(spec: InputSpec, model: str) -> int:
    """The one embedding width of all sparse slots. Raises ConfigError if they differ or if there are none."""
    widths = {slot: dim for slot, dim in zip(spec.slots, spec.dims, strict=True) if dim > 0}
    widths |= {s.name: s.dim for s in spec.sequences}
    if not widths:
        raise ConfigError(f"model {model!r} needs at least one sparse slot with an embedding; the schema has none")
    if len(set(widths.values())) > 1:
        shown = ", ".join(f"{name}: {dim}" for name, dim in widths.items())
        raise ConfigError(
            f"model {model!r} multiplies the embeddings of slots, so all must have one width; got {shown}. "
            "Remove 'dim' from the slots of the schema, or choose dnn, wide_deep or dcnv2"
        )
    return next(iter(widths.values()))


def field_embeddings(inputs: Inputs) -> Tensor:
    """[B, fields * K] embeddings of pooled slots, then means of sequences. A view if there are no sequences."""
    if not inputs.spec.sequences:
        return inputs.embeddings
    return torch.cat([inputs.embeddings, *(mean_of(inputs.sequences[s.name]) for s in inputs.spec.sequences)], dim=1)


def field_count(spec: InputSpec) -> int:
    """The number of embeddings in `field_embeddings`."""
    return len(spec.embedded_slots) + len(spec.sequences)
