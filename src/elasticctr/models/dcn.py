"""Deep & Cross (Wang et al., 2017): cross layers with one vector each, next to a tower or followed by it."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.cross import VectorCross
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.model import Model, TowerSettings, Widths


class DCNSettings(TowerSettings):
    hidden: Widths = Field((512, 256, 128), description="widths of the tower's hidden layers; [] for none")
    structure: Literal["stacked", "parallel"] = Field(
        "parallel", description="stacked: the tower reads the crosses; parallel: both read the features"
    )
    cross_layers: int = Field(3, ge=1, le=16, description="n layers model products of up to n + 1 features")


class DCN(Model):
    name = "dcn"
    settings_class = DCNSettings

    def __init__(self, spec: InputSpec, settings: DCNSettings) -> None:
        super().__init__(spec, settings)
        width = deep_width(spec)
        self.is_stacked = settings.structure == "stacked" or not settings.hidden
        self.cross = self.make_cross(width, settings)
        if self.is_stacked:
            self.deep = settings.tower(width, spec.labels)
        else:
            self.deep = settings.tower(width, None)
            self.head = nn.Linear(width + settings.hidden[-1], spec.labels)

    @staticmethod
    def make_cross(width: int, settings: DCNSettings) -> nn.Module:
        return VectorCross(width, settings.cross_layers)

    def forward(self, inputs: Inputs) -> Tensor:
        features = deep_features(inputs)
        crossed = self.cross(features)
        if self.is_stacked:
            return self.to_logits(self.deep(crossed))
        return self.to_logits(self.head(torch.cat([crossed, self.deep(features)], dim=1)))
