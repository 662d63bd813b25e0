"""SIM (Pi et al., 2020): a search reduces a long history to the values relevant to the target; attention reads them."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec, SequenceSpec
from elasticctr.models.layers.behaviours import Behaviours, Pair, check_lengths, find_sequence, read_values
from elasticctr.models.layers.recency import Recency, distances
from elasticctr.models.layers.search import hard_search, soft_search
from elasticctr.models.layers.target_attention import TargetAttention
from elasticctr.models.model import Model
from elasticctr.models.sequence_settings import AttentionSettings, SequenceSettings


class SearchSettings(AttentionSettings):
    category: AttentionSettings | None = Field(
        None, description="sequence with the category of each value, and the target's category; for search: hard"
    )
    time: str | None = Field(
        None, description="sequence that says when each value occurred, for example its age in buckets"
    )


class SIMSettings(SequenceSettings):
    attention: tuple[SearchSettings, ...] = Field(
        (), description="sequences and their targets; default: the targets in the schema"
    )
    search: Literal["soft", "hard"] = Field(
        "soft", description="soft: largest inner products with the target; hard: last values of the target's category"
    )
    k: int = Field(50, ge=1, le=65536, description="number of values the search keeps")
    heads: int = Field(2, ge=1, le=64, description="heads of the attention over them")
    head_dim: int = Field(16, ge=1, le=1024, description="width of a head")


class Searched(nn.Module):
    """One long sequence → [B, heads * head_dim], zeros if nothing was found."""

    def __init__(self, spec: InputSpec, pair: Pair, wanted: SearchSettings | None, settings: SIMSettings) -> None:
        super().__init__()
        self.pair, self.k = pair, settings.k
        category = None if wanted is None or settings.search == "soft" else wanted.category
        if settings.search == "hard" and category is None:
            raise ConfigError(
                f"model 'sim': search: hard needs 'category' (sequence and target) in model.attention for sequence "
                f"{pair.sequences[0].name!r}"
            )
        self.category = None if category is None else Pair(spec, category.sequence, category.target, "sim")
        self.time = None if wanted is None or wanted.time is None else find_sequence(spec, wanted.time, "sim")
        check_lengths([*pair.sequences, *self.beside], "sim")
        self.recency = Recency(pair.max_values, pair.dim)
        width = pair.dim + (0 if self.time is None else self.time.dim)
        self.attention = TargetAttention(pair.dim, width, settings.heads, settings.head_dim)

    @property
    def beside(self) -> list[SequenceSpec]:
        """The other sequences that are read together with the pair."""
        return [
            *([] if self.category is None else self.category.sequences),
            *([] if self.time is None else [self.time]),
        ]

    def forward(self, inputs: Inputs) -> Tensor:
        read = self.pair.read(inputs)
        if self.category is None:
            found = soft_search(read.query, read.keys, read.mask, self.k)
        else:
            category = self.category.read(inputs)
            found = hard_search(category.query, category.keys, read.mask & category.mask, self.k)
        keys = found.take(read.keys)
        keys = keys + self.recency(found.take(distances(read.lengths, read.keys.shape[1])))
        if self.time is not None:
            keys = torch.cat([keys, found.take(read_values(inputs, self.time))], dim=2)
        result: Tensor = self.attention(read.query, keys, found.mask)
        return result


class SIM(Model):
    name = "sim"
    settings_class = SIMSettings

    def __init__(self, spec: InputSpec, settings: SIMSettings) -> None:
        super().__init__(spec, settings)
        wanted = settings.attention
        self.behaviours = Behaviours(spec, [(a.sequence, a.target) for a in wanted], self.name)
        pairs = self.behaviours.pairs
        units = [Searched(spec, pair, wanted[i] if wanted else None, settings) for i, pair in enumerate(pairs)]
        # The search gives categories no gradient, so the tower still reads their mean.
        self.behaviours.leave_out(unit.time.name for unit in units if unit.time is not None)
        self.units = nn.ModuleList(units)
        width = self.behaviours.width(spec) + len(units) * settings.heads * settings.head_dim
        self.tower = settings.tower(width, spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        found = [unit(inputs) for unit in self.units]
        return self.to_logits(self.tower(torch.cat([*self.behaviours.others(inputs), *found], dim=1)))
