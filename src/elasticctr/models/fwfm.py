"""Field-weighted factorization machine (Pan et al., 2018): fm with a learned weight for every pair of fields."""

from __future__ import annotations

from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.field_pairs import WeightedPairs
from elasticctr.models.layers.fields import DenseFields, Fields
from elasticctr.models.layers.first_order import FirstOrder
from elasticctr.models.model import InputNeeds, Model, ModelSettings


class FwFMSettings(ModelSettings):
    dense_fields: DenseFields = Field(
        True, description="treat each dense float as a field with a learned vector; autodis: learned, soft buckets"
    )
    linear_part: Literal["field", "feature"] = Field(
        "field", description="field: <v, w of its field> for each feature; feature: one weight per feasign, as in lr"
    )


class FwFM(Model):
    name = "fwfm"
    settings_class = FwFMSettings

    def __init__(self, spec: InputSpec, settings: FwFMSettings) -> None:
        super().__init__(spec, settings)
        if spec.labels != 1:
            raise ConfigError(f"model 'fwfm' predicts one label, but the schema has {spec.labels}; choose dnn")
        self.fields = Fields(spec, self.name, settings.dense_fields)
        self.pairs = WeightedPairs(self.fields.count)
        self.first_order = FirstOrder(spec)
        self.field_weights: nn.Parameter | None = None
        if settings.linear_part == "field":
            self.field_weights = nn.Parameter(torch.zeros(self.fields.count * self.fields.dim, 1))

    @classmethod
    def input_needs(cls, settings: ModelSettings) -> InputNeeds:
        return InputNeeds(settings.dim, cast(FwFMSettings, settings).linear_part == "feature")

    def forward(self, inputs: Inputs) -> Tensor:
        fields = self.fields(inputs)
        logits = self.first_order(inputs) + self.pairs(fields)
        if self.field_weights is not None:
            logits = logits + fields.flatten(1) @ self.field_weights
        return self.to_logits(logits)
