"""Attention over a user's history, in thirty lines.

Each past item is weighted by how well it fits the other slots of the sample; a tower reads the weighted sum beside
embeddings and dense floats. Works with any schema that has at least one slot with `pooling: none`.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.errors import ConfigError
from elasticctr.models import Inputs, InputSpec, Model, Sequence, TowerSettings
from elasticctr.models.layers.mlp import MLP


class AttentionSettings(TowerSettings):
    temperature: float = Field(1.0, gt=0, description="small: only the best fit counts; large: all count alike")


class HistoryAttention(Model):
    settings_class = AttentionSettings

    def __init__(self, spec: InputSpec, settings: AttentionSettings) -> None:
        super().__init__(spec, settings)
        if not spec.sequences:
            raise ConfigError("HistoryAttention needs a slot with pooling: none in the schema")
        self.temperature = settings.temperature
        width = spec.embedding_width + spec.dense_dim
        self.queries = nn.ModuleDict({s.name: nn.Linear(width, s.dim) for s in spec.sequences})
        self.tower = MLP(width + sum(s.dim for s in spec.sequences), settings.hidden, spec.labels, settings.dropout)

    def forward(self, inputs: Inputs) -> Tensor:
        read = [self.attend(self.queries[name](inputs.deep), s) for name, s in inputs.sequences.items()]
        return self.to_logits(self.tower(torch.cat([inputs.deep, *read], dim=1)))

    def attend(self, query: Tensor, history: Sequence) -> Tensor:
        """[B, dim]; zeros for a user without a history."""
        fit = (history.values * query.unsqueeze(1)).sum(dim=2) / self.temperature
        weights = torch.softmax(fit.masked_fill(~history.mask(), -1e9), dim=1) * history.mask()
        return (weights.unsqueeze(2) * history.values).sum(dim=1)
