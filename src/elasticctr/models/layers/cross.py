"""Cross layers of DCN-V2 (Wang et al., WWW 2021): x_{l+1} = x_0 * (W_l x_l + b_l) + x_l.

Layer l holds products of up to l + 1 features. With a rank r, W_l = U_l V_l: 2 r D weights instead of D².
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Cross(nn.Module):
    """[B, width] → [B, width] through `layers` cross layers; `rank` 0 means a full matrix."""

    def __init__(self, width: int, layers: int, rank: int = 0) -> None:
        super().__init__()
        self.full = nn.ModuleList()
        self.down = nn.ModuleList()
        self.up = nn.ModuleList()
        for _ in range(layers):
            if rank == 0:
                self.full.append(_linear(width, width, bias=True))
            else:
                self.down.append(_linear(width, rank, bias=False))
                self.up.append(_linear(rank, width, bias=True))

    def forward(self, x0: Tensor) -> Tensor:
        x = x0
        for full in self.full:
            x = torch.addcmul(x, x0, full(x))
        for down, up in zip(self.down, self.up, strict=True):
            x = torch.addcmul(x, x0, up(down(x)))
        return x


def _linear(width: int, out: int, bias: bool) -> nn.Linear:
    linear = nn.Linear(width, out, bias=bias)
    nn.init.xavier_normal_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
