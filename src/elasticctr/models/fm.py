"""Factorization machine (Rendle, 2010): logistic regression plus a learned weight for every pair of features."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import field_dim
from elasticctr.models.layers.first_order import FirstOrder
from elasticctr.models.layers.fm import Pairs
from elasticctr.models.model import Model, ModelSettings


class FMSettings(ModelSettings):
    dense_pairs: bool = Field(True, description="include dense floats in the pairs, each with a learned vector")


class FM(Model):
    name = "fm"
    settings_class = FMSettings
    linear = True

    def __init__(self, spec: InputSpec, settings: FMSettings) -> None:
        super().__init__(spec, settings)
        if spec.labels != 1:
            raise ConfigError(f"model 'fm' predicts one label, but the schema has {spec.labels}; choose dnn")
        self.first_order = FirstOrder(spec)
        self.pairs = Pairs(spec, field_dim(spec, self.name), settings.dense_pairs)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.to_logits(self.first_order(inputs) + self.pairs(inputs))
