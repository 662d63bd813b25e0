"""xDeepFM (Lian et al., 2018): a compressed interaction network, a tower over the same embeddings and a linear part."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.cin import CIN
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.layers.fields import DenseFields, Fields
from elasticctr.models.layers.first_order import FirstOrder
from elasticctr.models.layers.mlp import MLP
from elasticctr.models.model import Model, TowerSettings, Widths


class XDeepFMSettings(TowerSettings):
    hidden: Widths = Field((512, 256, 128), description="widths of the hidden layers of the tower; [] for none")
    cin: Widths = Field((16, 16, 16), min_length=1, description="maps of each layer of the interaction network")
    split_half: bool = Field(False, description="output half of a layer's maps and pass on the other half")
    dense_fields: DenseFields = Field(
        True,
        description="each dense float is a field with a learned vector; autodis: with learned, soft buckets",
    )


class XDeepFM(Model):
    name = "xdeepfm"
    settings_class = XDeepFMSettings
    linear = True

    def __init__(self, spec: InputSpec, settings: XDeepFMSettings) -> None:
        super().__init__(spec, settings)
        self.first_order = FirstOrder(spec)
        self.fields = Fields(spec, self.name, settings.dense_fields)
        self.cin = CIN(self.fields.count, settings.cin, settings.split_half)
        self.head = MLP(self.cin.out_features, (), spec.labels)
        self.deep = settings.tower(deep_width(spec), spec.labels) if settings.hidden else None

    def forward(self, inputs: Inputs) -> Tensor:
        logits = self.first_order(inputs) + self.head(self.cin(self.fields(inputs)))
        if self.deep is not None:
            logits = logits + self.deep(deep_features(inputs))
        return self.to_logits(logits)
