"""DeepFM (Guo et al., 2017): the sum of a factorization machine and a tower over the same embeddings."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import deep_features, deep_width, field_dim
from elasticctr.models.layers.first_order import FirstOrder
from elasticctr.models.layers.fm import Pairs
from elasticctr.models.model import Model, TowerSettings


class DeepFMSettings(TowerSettings):
    dense_pairs: bool = Field(True, description="include dense floats in the pairs, each with a learned vector")


class DeepFM(Model):
    name = "deepfm"
    settings_class = DeepFMSettings
    linear = True

    def __init__(self, spec: InputSpec, settings: DeepFMSettings) -> None:
        super().__init__(spec, settings)
        self.first_order = FirstOrder(spec)
        self.fm = Pairs(spec, field_dim(spec, self.name), settings.dense_pairs)
        self.deep = settings.tower(deep_width(spec), spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.to_logits(self.first_order(inputs) + self.fm(inputs) + self.deep(deep_features(inputs)))
