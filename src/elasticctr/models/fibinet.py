"""FiBiNET (Huang et al., 2019): a tower reads bilinear products of all pairs of slots, once of the plain embeddings and
once of those scaled by squeeze and excitation.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.bilinear import Bilinear, BilinearKind
from elasticctr.models.layers.features import field_count, field_dim, field_embeddings
from elasticctr.models.layers.first_order import FirstOrder
from elasticctr.models.layers.squeeze import SqueezeExcitation
from elasticctr.models.model import Model, TowerSettings, Widths


class FiBiNETSettings(TowerSettings):
    hidden: Widths = Field((400, 400), description="widths of the hidden layers; the first reads the pairs")
    bilinear: BilinearKind = Field(
        "interaction", description="matrices: one for all pairs, one for each left slot, or one for each pair"
    )
    reduction: int = Field(
        3, ge=1, le=65536, description="the inner layer of squeeze and excitation has slots / reduction values"
    )


class FiBiNET(Model):
    name = "fibinet"
    settings_class = FiBiNETSettings
    linear = True

    def __init__(self, spec: InputSpec, settings: FiBiNETSettings) -> None:
        super().__init__(spec, settings)
        self.dim, self.fields = field_dim(spec, self.name), field_count(spec)
        if self.fields < 2:
            raise ConfigError(
                f"model {self.name!r} multiplies pairs of slots, but the schema has only one sparse slot; choose dnn"
            )
        self.first_order = FirstOrder(spec)
        self.squeeze = SqueezeExcitation(self.fields, settings.reduction)
        self.plain_pairs = Bilinear(self.fields, self.dim, settings.bilinear)
        self.scaled_pairs = Bilinear(self.fields, self.dim, settings.bilinear)
        self.deep = settings.tower(2 * self.plain_pairs.width + spec.dense_dim, spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        fields = field_embeddings(inputs).reshape(-1, self.fields, self.dim)
        parts = [self.plain_pairs(fields), self.scaled_pairs(self.squeeze(fields))]
        if inputs.spec.dense_dim > 0:
            parts.append(inputs.dense.detach() if self.training else inputs.dense)  # as in FirstOrder
        return self.to_logits(self.first_order(inputs) + self.deep(torch.cat(parts, dim=1)))
