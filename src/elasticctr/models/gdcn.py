"""GDCN (Wang et al., 2023): gated cross layers, followed by a tower or next to one."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.layers.gated_cross import GatedCross
from elasticctr.models.layers.linear import xavier_linear
from elasticctr.models.model import Model, TowerSettings, Widths


class GDCNSettings(TowerSettings):
    hidden: Widths = Field((400, 400, 400), description="widths of the tower's hidden layers; [] for none")
    structure: Literal["stacked", "parallel"] = Field(
        "parallel",
        description="stacked (GDCN-S): the tower reads the crosses; parallel (GDCN-P): both read the features",
    )
    cross_layers: int = Field(3, ge=1, le=16, description="n layers model products of up to n + 1 features")


class GDCN(Model):
    name = "gdcn"
    settings_class = GDCNSettings

    def __init__(self, spec: InputSpec, settings: GDCNSettings) -> None:
        super().__init__(spec, settings)
        width = deep_width(spec)
        self.is_stacked = settings.structure == "stacked" or not settings.hidden
        self.cross = GatedCross(width, settings.cross_layers)
        self.deep = settings.tower(width, spec.labels if self.is_stacked else None)
        if not self.is_stacked:
            self.head: nn.Linear = xavier_linear(width + settings.hidden[-1], spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        features = deep_features(inputs)
        crossed = self.cross(features)
        if self.is_stacked:
            return self.to_logits(self.deep(crossed))
        return self.to_logits(self.head(torch.cat([crossed, self.deep(features)], dim=1)))
