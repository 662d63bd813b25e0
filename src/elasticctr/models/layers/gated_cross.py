"""Gated cross layers (GDCN, Wang et al., CIKM 2023): x_{l+1} = x_0 * (W_l x_l + b_l) * sigmoid(G_l x_l) + x_l.

The gate of each layer decides which crosses of the next degree to keep.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elasticctr.models.layers.linear import xavier_linear


class GatedCross(nn.Module):
    """[B, width] → [B, width] through `layers` gated cross layers."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.cross = nn.ModuleList(xavier_linear(width, width) for _ in range(layers))
        self.gate = nn.ModuleList(xavier_linear(width, width, bias=False) for _ in range(layers))

    def forward(self, x0: Tensor) -> Tensor:
        x = x0
        for cross, gate in zip(self.cross, self.gate, strict=True):
            x = torch.addcmul(x, x0 * cross(x), torch.sigmoid(gate(x)))
        return x
