"""AutoInt (Song et al., 2019): fields attend to each other; with a tower beside it, AutoInt+."""

from __future__ import annotations

from typing import cast

from pydantic import Field
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.layers.fields import DenseFields, Fields
from elasticctr.models.layers.first_order import FirstOrder
from elasticctr.models.layers.mlp import MLP
from elasticctr.models.layers.self_attention import SelfAttention
from elasticctr.models.model import InputNeeds, Model, ModelSettings, TowerSettings, Widths


class AutoIntSettings(TowerSettings):
    hidden: Widths = Field((512, 256, 128), description="widths of the tower beside the attention; [] for none")
    attention_layers: int = Field(3, ge=1, le=16, description="n layers hold interactions of up to 2^n fields")
    heads: int = Field(2, ge=1, le=64, description="heads of each attention layer")
    head_dim: int = Field(16, ge=1, le=1024, description="width of a head; a field leaves a layer heads times as wide")
    scale: bool = Field(False, description="divide attention scores by sqrt(head_dim)")
    dense_fields: DenseFields = Field(
        True, description="each dense float is a field with a learned vector; autodis: with learned, soft buckets"
    )
    wide: bool = Field(False, description="add a linear part: one weight per feasign and per dense float")


class AutoInt(Model):
    name = "autoint"
    settings_class = AutoIntSettings

    def __init__(self, spec: InputSpec, settings: AutoIntSettings) -> None:
        super().__init__(spec, settings)
        self.fields = Fields(spec, self.name, settings.dense_fields)
        width = self.fields.dim
        layers = []
        for _ in range(settings.attention_layers):
            layers.append(SelfAttention(width, settings.heads, settings.head_dim, settings.scale))
            width = layers[-1].out_features
        self.attention = nn.Sequential(*layers)
        self.head = MLP(self.fields.count * width, (), spec.labels)
        self.deep = settings.tower(deep_width(spec), spec.labels) if settings.hidden else None
        self.first_order = FirstOrder(spec) if settings.wide else None

    @classmethod
    def input_needs(cls, settings: ModelSettings) -> InputNeeds:
        return InputNeeds(settings.dim, cast(AutoIntSettings, settings).wide)

    def forward(self, inputs: Inputs) -> Tensor:
        logits = self.head(self.attention(self.fields(inputs)).flatten(1))
        if self.deep is not None:
            logits = logits + self.deep(deep_features(inputs))
        if self.first_order is not None:
            logits = logits + self.first_order(inputs)
        return self.to_logits(logits)
