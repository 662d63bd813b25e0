"""The fields that interaction models pair with each other: slots, sequences and, where wanted, dense floats."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.autodis import AutoDis
from elasticctr.models.layers.features import field_dim, field_embeddings

DenseFields = bool | Literal["autodis"]


class Fields(nn.Module):
    """Inputs → [B, count, dim]: embeddings of pooled slots, means of sequences and, with `dense_fields`, each dense
    float times a learned vector, or its AutoDis embedding. A view if there are neither sequences nor dense fields.
    """

    def __init__(self, spec: InputSpec, model: str, dense_fields: DenseFields = True) -> None:
        super().__init__()
        self.dim = field_dim(spec, model)
        dense = spec.dense_dim if dense_fields else 0
        self.sparse = len(spec.embedded_slots) + len(spec.sequences)
        self.count = self.sparse + dense
        is_learned = dense_fields == "autodis" and dense > 0
        self.autodis = AutoDis(dense, self.dim) if is_learned else None
        self.dense_vectors = nn.Parameter(torch.empty(dense, self.dim)) if dense and not is_learned else None
        if self.dense_vectors is not None:
            nn.init.normal_(self.dense_vectors, std=0.01)

    def forward(self, inputs: Inputs) -> Tensor:
        embeddings = field_embeddings(inputs).reshape(inputs.flat.shape[0], self.sparse, self.dim)
        dense = inputs.dense.detach() if self.training else inputs.dense  # as in FirstOrder
        if self.autodis is not None:
            return torch.cat([embeddings, self.autodis(dense).to(embeddings.dtype)], dim=1)
        if self.dense_vectors is None:
            return embeddings
        vectors = dense.unsqueeze(2) * self.dense_vectors
        return torch.cat([embeddings, vectors.to(embeddings.dtype)], dim=1)
