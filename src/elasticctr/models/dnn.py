"""A tower over embeddings and dense floats, nothing else."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.layers.tower_step import TowerParts
from elasticctr.models.model import Model, TowerSettings, Widths


class DNNSettings(TowerSettings):
    hidden: Widths = Field((400, 400, 400), description="widths of the hidden layers; the first reads the features")


class DNN(Model):
    name = "dnn"
    settings_class = DNNSettings
    is_tower = True

    def __init__(self, spec: InputSpec, settings: DNNSettings) -> None:
        super().__init__(spec, settings)
        self.deep = settings.tower(deep_width(spec), spec.labels)

    def tower_parts(self) -> TowerParts | None:
        is_own = type(self).forward is DNN.forward and not self.spec.sequences and self.spec.labels == 1
        return TowerParts(self.deep) if is_own else None

    def forward(self, inputs: Inputs) -> Tensor:
        return self.to_logits(self.deep(deep_features(inputs)))
