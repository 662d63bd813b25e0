"""EDCN (Chen et al., 2021): a cross stream and a deep stream that exchange their results after each layer."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.bridge import Bridge, BridgeKind
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.layers.gates import Regulation
from elasticctr.models.layers.linear import xavier_linear
from elasticctr.models.layers.mlp import MLP
from elasticctr.models.layers.norms import BatchNorm
from elasticctr.models.model import Model, ModelSettings


class EDCNSettings(ModelSettings):
    layers: int = Field(3, ge=1, le=16, description="layers of both streams, as wide as the features")
    bridge: BridgeKind = Field("product", description="how the streams meet: product, sum, concat or attention")
    temperature: float = Field(1.0, gt=0, le=1e6, description="temperature of the shares of slots; high: all alike")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of the deep stream's values set to zero in training")
    batch_norm: bool = Field(True, description="normalise what each layer reads over the batch")


class EDCN(Model):
    name = "edcn"
    settings_class = EDCNSettings

    def __init__(self, spec: InputSpec, settings: EDCNSettings) -> None:
        super().__init__(spec, settings)
        s, width = settings, deep_width(spec)
        fields = [w for w in (*spec.dims, spec.dense_dim, *(q.dim for q in spec.sequences)) if w > 0]
        self.regulations = nn.ModuleList(Regulation(fields, s.temperature) for _ in range(s.layers))
        norms = 2 * s.layers if s.batch_norm else 0
        self.norms = nn.ModuleList(BatchNorm(width) for _ in range(norms))
        self.cross = nn.ModuleList(xavier_linear(width, 1, bias=False) for _ in range(s.layers))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(width)) for _ in range(s.layers))
        self.deep = nn.ModuleList(MLP(width, (width,), None, s.dropout) for _ in range(s.layers))
        self.bridges = nn.ModuleList(Bridge(width, s.bridge) for _ in range(s.layers))
        self.head = xavier_linear(3 * width, spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        bridged = deep_features(inputs)
        first: Tensor | None = None
        for i, (regulation, bridge) in enumerate(zip(self.regulations, self.bridges, strict=True)):
            cross, deep = regulation(bridged)
            if len(self.norms) > 0:
                cross, deep = self.norms[2 * i](cross), self.norms[2 * i + 1](deep)
            first = cross if first is None else first
            cross = torch.addcmul(cross + self.biases[i], first, self.cross[i](cross))
            deep = self.deep[i](deep)
            bridged = bridge(cross, deep)
        return self.to_logits(self.head(torch.cat([cross, deep, bridged], dim=1)))
