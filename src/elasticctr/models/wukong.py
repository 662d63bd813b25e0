"""Wukong (Zhang et al., 2024): layers of factorization machines over the previous layer's embeddings."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import field_count, field_dim, field_embeddings
from elasticctr.models.layers.mlp import MLP
from elasticctr.models.layers.wukong import WukongLayer
from elasticctr.models.model import Model, TowerSettings, Widths

_DENSE_START = 0.1  # relative to the initial size in other layers


class WukongSettings(TowerSettings):
    hidden: Widths = Field((256, 128), description="widths of the hidden layers of the tower over the last embeddings")
    layers: int = Field(3, ge=1, le=32, description="n layers hold products of up to 2^n features")
    fm_embeddings: int = Field(16, ge=1, le=4096, description="embeddings a layer takes from factorization machines")
    linear_embeddings: int = Field(16, ge=1, le=4096, description="embeddings a layer takes as mixes of the last ones")
    rank: int = Field(16, ge=1, le=4096, description="columns that replace all pairs in a factorization machine")
    fm_hidden: Widths = Field((256,), description="hidden layers after each factorization machine")
    dense_embeddings: int = Field(4, ge=1, le=4096, description="embeddings made from all dense floats together")


class Wukong(Model):
    name = "wukong"
    settings_class = WukongSettings

    def __init__(self, spec: InputSpec, settings: WukongSettings) -> None:
        super().__init__(spec, settings)
        s = settings
        self.dim, fields = field_dim(spec, self.name), field_count(spec)
        self.dense: MLP | None = None
        if spec.dense_dim > 0:
            fields += s.dense_embeddings
            width = s.dense_embeddings * self.dim
            self.dense = MLP(spec.dense_dim, (width,), width)
            # They start small: among products of large vectors the norm of a factorization
            # machine makes those of small ones vanish.
            nn.init.normal_(self.dense.layers()[-1].weight, std=_DENSE_START / width**0.5)
        out = s.fm_embeddings + s.linear_embeddings
        self.layers = nn.ModuleList(
            WukongLayer(n, self.dim, s.fm_embeddings, s.linear_embeddings, s.rank, s.fm_hidden, s.dropout)
            for n in (fields, *(out for _ in range(s.layers - 1)))
        )
        self.deep = s.tower(out * self.dim, spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        flat = field_embeddings(inputs)
        if self.dense is not None:
            dense = inputs.dense.detach() if self.training else inputs.dense  # as in FirstOrder
            flat = torch.cat([flat, self.dense(dense).to(flat.dtype)], dim=1)
        x = flat.reshape(-1, flat.shape[1] // self.dim, self.dim)
        for layer in self.layers:
            x = layer(x)
        return self.to_logits(self.deep(x.flatten(1)))
