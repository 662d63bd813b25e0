"""DIN (Zhou et al., 2018): a tower over the features and the parts of a history that are relevant to the target."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.behaviours import Behaviours
from elasticctr.models.layers.target_attention import LocalActivation
from elasticctr.models.model import Activation, Model, Widths
from elasticctr.models.sequence_settings import SequenceSettings


class DINSettings(SequenceSettings):
    attention_hidden: Widths = Field((64,), description="hidden layers of the unit that weighs a value")
    attention_activation: Activation = Field("relu", description="activation in that unit; the paper uses dice")
    attention_softmax: bool = Field(False, description="weights of a history sum to 1; the paper leaves them free")


class DIN(Model):
    name = "din"
    settings_class = DINSettings

    def __init__(self, spec: InputSpec, settings: DINSettings) -> None:
        super().__init__(spec, settings)
        self.behaviours = Behaviours(spec, [(a.sequence, a.target) for a in settings.attention], self.name)
        self.units = nn.ModuleList(
            LocalActivation(
                pair.dim, settings.attention_hidden, settings.attention_activation, settings.attention_softmax
            )
            for pair in self.behaviours.pairs
        )
        width = self.behaviours.width(spec) + sum(pair.dim for pair in self.behaviours.pairs)
        self.tower = settings.tower(width, spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        interests = []
        for pair, unit in zip(self.behaviours.pairs, self.units, strict=True):
            read = pair.read(inputs)
            interests.append(unit(read.query, read.keys, read.mask))
        return self.to_logits(self.tower(torch.cat([*self.behaviours.others(inputs), *interests], dim=1)))
