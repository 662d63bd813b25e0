"""Factorised interaction layers (FINAL, Zhu et al., SIGIR 2023): a linear layer whose halves are multiplied.

With (a, b) = the halves of W x + c: `concat` gives [a, a * b], `sum` gives a + a * b. n layers hold products of up to
2^n features.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from elasticctr.errors import ConfigError
from elasticctr.models.layers.linear import xavier_linear
from elasticctr.models.layers.mlp import ACTIVATIONS
from elasticctr.models.layers.norms import BatchNorm

Residual = Literal["concat", "sum"]


class FactorizedBlock(nn.Module):
    """[B, in_features] → [B, hidden[-1]]: after each layer batch norm, activation, dropout, each if wanted."""

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        residual: Residual = "concat",
        dropout: float = 0.0,
        batch_norm: bool = False,
        activation: str = "none",
    ) -> None:
        super().__init__()
        if residual == "concat" and any(width % 2 for width in hidden):
            raise ConfigError(f"residual 'concat' needs even widths of hidden layers, not {list(hidden)}")
        self.residual = residual
        factor = 2 if residual == "sum" else 1
        self.linears = nn.ModuleList(
            xavier_linear(a, b * factor) for a, b in itertools.pairwise((in_features, *hidden))
        )
        self.norms = nn.ModuleList(BatchNorm(width) for width in hidden) if batch_norm else None
        self.activation = None if activation == "none" else ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout) if dropout > 0 else None

    def forward(self, x: Tensor) -> Tensor:
        for index, linear in enumerate(self.linears):
            a, b = linear(x).chunk(2, dim=1)
            x = torch.cat([a, a * b], dim=1) if self.residual == "concat" else torch.addcmul(a, a, b)
            x = x if self.norms is None else self.norms[index](x)
            x = x if self.activation is None else self.activation(x)
            x = x if self.dropout is None else self.dropout(x)
        return x
