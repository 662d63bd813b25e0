"""Factorization machine: the sum of x_i x_j <v_i, v_j> over all pairs of features, in linear time.

Rendle, Factorization Machines, ICDM 2010. For each of the K columns the pair sum is ((Σ v)² - Σ v²) / 2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import field_embeddings


def pair_sum(total: Tensor, squares: Tensor) -> Tensor:
    """[B, 1] from Σ v and Σ v², both [B, K]."""
    return 0.5 * (total * total - squares).sum(dim=1, keepdim=True)


class Pairs(nn.Module):
    """Inputs → [B, 1]. With `dense_pairs`, dense float j takes part as x_j times a learned vector."""

    def __init__(self, spec: InputSpec, dim: int, dense_pairs: bool = True) -> None:
        super().__init__()
        has_dense = dense_pairs and spec.dense_dim > 0
        self.dense_vectors = nn.Parameter(torch.empty(spec.dense_dim, dim)) if has_dense else None
        if self.dense_vectors is not None:
            nn.init.normal_(self.dense_vectors, std=0.01)

    def forward(self, inputs: Inputs) -> Tensor:
        fields = field_embeddings(inputs)
        total = fields.sum(dim=1)
        squares = (fields * fields).sum(dim=1)
        if self.dense_vectors is not None:
            # Products instead of a [B, dense, K] tensor.
            total = total + inputs.dense @ self.dense_vectors
            squares = squares + (inputs.dense * inputs.dense) @ (self.dense_vectors * self.dense_vectors)
        return pair_sum(total, squares)
