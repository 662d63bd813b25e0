"""DIEN (Zhou et al., 2019): a GRU finds interests in a history, a second one follows those that lead to the target."""

from __future__ import annotations

from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.auxiliary import next_value_losses
from elasticctr.models.layers.behaviours import Behaviour, Behaviours
from elasticctr.models.layers.gru import GRU
from elasticctr.models.layers.linear import xavier_linear
from elasticctr.models.layers.target_attention import masked_softmax
from elasticctr.models.model import Model
from elasticctr.models.sequence_settings import SequenceSettings

_MAX_VALUES = 256


class DIENSettings(SequenceSettings):
    evolution: Literal["augru", "agru"] = Field(
        "augru", description="attention scales the update gate of the second GRU, or replaces it"
    )
    auxiliary: float = Field(
        0.0, ge=0.0, le=100.0, description="weight of the loss for predicting the next value from each state; 0: none"
    )


class Evolution(nn.Module):
    """A behaviour → its last interest [B, dim] and the states [B, T, dim] of the first GRU."""

    def __init__(self, dim: int, evolution: Literal["augru", "agru"]) -> None:
        super().__init__()
        self.extractor = GRU(dim, dim)
        self.bilinear = xavier_linear(dim, dim, bias=False)
        self.evolution = GRU(dim, dim, evolution)

    def forward(self, read: Behaviour) -> tuple[Tensor, Tensor]:
        states = self.extractor(read.keys)
        scores = torch.bmm(states, self.bilinear(read.query).unsqueeze(2).to(states.dtype)).squeeze(2)
        # No attention past the end: the last interest stays the state.
        interest = self.evolution(states, masked_softmax(scores, read.mask))[:, -1]
        return interest, states


class DIEN(Model):
    name = "dien"
    settings_class = DIENSettings

    def __init__(self, spec: InputSpec, settings: DIENSettings) -> None:
        super().__init__(spec, settings)
        self.behaviours = Behaviours(spec, [(a.sequence, a.target) for a in settings.attention], self.name)
        pairs = self.behaviours.pairs
        for pair in pairs:
            if pair.max_values > _MAX_VALUES:
                raise ConfigError(
                    f"model {self.name!r} reads sequences value by value, at most {_MAX_VALUES}; slot "
                    f"{pair.sequences[0].name!r} keeps {pair.max_values}: lower its max_values, or choose din or sim"
                )
        self.evolutions = nn.ModuleList(Evolution(pair.dim, settings.evolution) for pair in pairs)
        self.tower = settings.tower(self.behaviours.width(spec) + sum(pair.dim for pair in pairs), spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        return self._read(inputs, 0.0)[0]

    def training_forward(self, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
        return self._read(inputs, cast(DIENSettings, self.settings).auxiliary)

    def _read(self, inputs: Inputs, auxiliary: float) -> tuple[Tensor, Tensor | None]:
        parts, losses = self.behaviours.others(inputs), []
        for pair, evolution in zip(self.behaviours.pairs, self.evolutions, strict=True):
            read = pair.read(inputs)
            interest, states = evolution(read)
            parts.append(interest)
            if auxiliary > 0:
                losses.append(next_value_losses(states, read.keys, read.mask))
        logits = self.to_logits(self.tower(torch.cat(parts, dim=1)))
        return logits, auxiliary * torch.stack(losses).sum(dim=0) if losses else None
