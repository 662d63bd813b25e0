"""The interaction layer of Wukong (Zhang et al., ICML 2024): n embeddings in, n_F + n_L embeddings out.

n_F come from a factorization machine block, MLP(LN(flat(X Xᵀ Y))) with a learned Y of `rank` columns instead of all
pairs; n_L from a linear compress block, W X. The input is added to them, and each embedding normalised. l layers hold
products of up to 2^l features.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elasticctr.models.layers.linear import xavier_linear
from elasticctr.models.layers.mlp import MLP


class WukongLayer(nn.Module):
    """[B, fields, K] → [B, machines + linears, K]."""

    def __init__(
        self, fields: int, dim: int, machines: int, linears: int, rank: int, hidden: Sequence[int], dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.machines, self.linears, self.rank, self.dim = machines, linears, rank, dim
        self.has_shortcut = fields != machines + linears
        # One product mixes the fields for three purposes: Y, W, and the shortcut if the counts differ.
        mixes = rank + linears + (machines + linears if self.has_shortcut else 0)
        self.mix = xavier_linear(fields, mixes, bias=False)
        self.machine_norm = nn.LayerNorm(fields * rank)
        self.machine = MLP(fields * rank, hidden, machines * dim)
        self.dropout = nn.Dropout(dropout) if dropout > 0 else None
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.mix(x.transpose(1, 2))  # [B, K, mixes]
        products = torch.bmm(x, mixed[:, :, : self.rank].to(x.dtype))  # X (Xᵀ Y)
        found = self.machine(self.machine_norm(products.flatten(1))).reshape(-1, self.machines, self.dim)
        kept = mixed[:, :, self.rank : self.rank + self.linears].transpose(1, 2)
        shortcut = mixed[:, :, self.rank + self.linears :].transpose(1, 2) if self.has_shortcut else x
        out = torch.cat([found, kept.to(found.dtype)], dim=1)
        out = out if self.dropout is None else self.dropout(out)
        normal: Tensor = self.norm(out + shortcut)
        return normal
