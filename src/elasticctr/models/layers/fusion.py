"""Joins two streams into logits: w_x x + w_y y + Σ over heads of x_h W_h y_h + b (FinalMLP, Mao et al., AAAI 2023)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from elasticctr.errors import ConfigError
from elasticctr.models.layers.linear import xavier_linear


class BilinearFusion(nn.Module):
    """(x [B, X], y [B, Y]) → [B, out]. Each of `heads` equal parts of x meets the same part of y."""

    def __init__(self, x: int, y: int, out: int = 1, heads: int = 1) -> None:
        super().__init__()
        if x % heads or y % heads:
            raise ConfigError(f"num_heads {heads} must divide the widths of both streams' last layers, {x} and {y}")
        self.out = out
        self.x = xavier_linear(x, out)
        self.y = xavier_linear(y, out, bias=False)
        self.weight = nn.Parameter(torch.empty(heads, x // heads, out * (y // heads)))
        nn.init.normal_(self.weight, std=math.sqrt(2.0 / (x * y // heads + 1)))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        linear: Tensor = self.x(x) + self.y(y)
        heads, each = self.weight.shape[0], y.shape[1] // self.weight.shape[0]
        met = torch.einsum("bhi,hik->bhk", x.reshape(-1, heads, x.shape[1] // heads), self.weight)
        met = met.reshape(-1, heads, self.out, each) * y.reshape(-1, heads, 1, each)
        return linear + met.sum(dim=(1, 3))
