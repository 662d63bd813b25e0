"""Field-aware factorization machine (Juan et al., 2016): a feature has a separate vector for each other field."""

from __future__ import annotations

from typing import cast

from pydantic import Field
from torch import Tensor

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import field_dim, field_embeddings
from elasticctr.models.layers.field_aware import FieldAwarePairs
from elasticctr.models.layers.first_order import FirstOrder
from elasticctr.models.model import InputNeeds, Model, ModelSettings


class FFMSettings(ModelSettings):
    dim: int = Field(4, ge=1, le=4096, description="width of each vector; a row holds one for every other field")
    dense_fields: bool = Field(True, description="treat each dense float as a field with learned vectors")


class FFM(Model):
    name = "ffm"
    settings_class = FFMSettings
    linear = True

    def __init__(self, spec: InputSpec, settings: FFMSettings) -> None:
        super().__init__(spec, settings)
        if spec.labels != 1:
            raise ConfigError(f"model 'ffm' predicts one label, but the schema has {spec.labels}; choose dnn")
        width = field_dim(spec, self.name)
        slots = len(spec.embedded_slots) + len(spec.sequences)
        dense = spec.dense_dim if settings.dense_fields else 0
        if slots + dense < 2:
            raise ConfigError("model 'ffm' pairs fields, but the schema has only one; choose lr")
        if width % (slots + dense - 1):
            raise ConfigError(
                f"model 'ffm' needs rows of {slots + dense - 1} vectors, one for each other field, but {width} floats "
                "do not divide evenly; make the input spec from input_needs()"
            )
        self.first_order = FirstOrder(spec)
        self.pairs = FieldAwarePairs(slots, dense, width // (slots + dense - 1))

    @classmethod
    def input_needs(cls, settings: ModelSettings) -> InputNeeds:
        dense_fields = cast(FFMSettings, settings).dense_fields
        return InputNeeds(settings.dim, cls.linear, field_aware=True, dense_fields=dense_fields)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.to_logits(self.first_order(inputs) + self.pairs(field_embeddings(inputs), inputs.dense))
