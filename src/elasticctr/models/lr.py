"""Logistic regression: one weight per feasign, one per dense float, a bias."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.first_order import FirstOrder
from elasticctr.models.model import Model, ModelSettings


class LRSettings(ModelSettings):
    dim: Literal[0] = Field(0, description="always 0: lr has no embeddings")


class LR(Model):
    name = "lr"
    settings_class = LRSettings
    linear = True

    def __init__(self, spec: InputSpec, settings: LRSettings) -> None:
        super().__init__(spec, settings)
        if spec.sequences:
            raise ConfigError(
                f"model 'lr' has no weights for the sequence slot {spec.sequences[0].name!r}; "
                "give it pooling: sum or mean, or choose another model"
            )
        if spec.labels != 1:
            raise ConfigError(f"model 'lr' predicts one label, but the schema has {spec.labels}; choose dnn")
        self.first_order = FirstOrder(spec)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.to_logits(self.first_order(inputs))
