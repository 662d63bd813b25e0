"""DLRM (Naumov et al., 2019): dense floats become one more embedding, all pairs are multiplied, a tower reads that."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.field_pairs import PairDots
from elasticctr.models.layers.fields import Fields
from elasticctr.models.layers.mlp import MLP
from elasticctr.models.model import Model, TowerSettings, Widths


class DLRMSettings(TowerSettings):
    hidden: Widths = Field((512, 256, 128), description="widths of the hidden layers of the top tower")
    bottom: Widths = Field((256, 64), description="widths of the tower of dense floats; one of width dim follows")
    embeddings_on_top: bool = Field(False, description="the top tower reads the embeddings as well as their products")


class DLRM(Model):
    name = "dlrm"
    settings_class = DLRMSettings

    def __init__(self, spec: InputSpec, settings: DLRMSettings) -> None:
        super().__init__(spec, settings)
        self.fields = Fields(spec, self.name, dense_fields=False)
        dim, count = self.fields.dim, self.fields.count + (spec.dense_dim > 0)
        if count < 2:
            raise ConfigError("model 'dlrm' multiplies pairs, but the schema has only one slot; choose dnn")
        self.bottom: MLP | None = None
        if spec.dense_dim:
            self.bottom = MLP(spec.dense_dim, (*settings.bottom, dim), None, activation=settings.activation)
        self.dots = PairDots(count)
        width = self.dots.pairs + (dim if self.bottom is not None else 0)
        self.top_reads_embeddings = settings.embeddings_on_top
        if self.top_reads_embeddings:
            width = self.dots.pairs + count * dim
        self.deep = settings.tower(width, spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        fields = self.fields(inputs)
        parts = []
        if self.bottom is not None:
            dense = self.bottom(inputs.dense.detach() if self.training else inputs.dense)  # as in FirstOrder
            fields = torch.cat([dense.unsqueeze(1), fields], dim=1)
            parts.append(dense)
        if self.top_reads_embeddings:
            parts = [fields.flatten(1)]
        return self.to_logits(self.deep(torch.cat([*parts, self.dots(fields)], dim=1)))
