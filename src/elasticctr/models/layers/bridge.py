"""Bridges of EDCN (Chen et al., CIKM 2021): after each layer, one vector from the cross stream's and the deep
stream's, which is the next input of both.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elasticctr.models.layers.linear import xavier_linear

BridgeKind = Literal["product", "sum", "concat", "attention"]


class Bridge(nn.Module):
    """(x, y), both [B, width] → [B, width].

    `product`: x * y; `sum`: x + y; `concat`: relu(W [x, y]); `attention`: a(x) * x + b(y) * y, where a and b are
    softmaxes over the width of two-layer perceptrons.
    """

    def __init__(self, width: int, kind: BridgeKind) -> None:
        super().__init__()
        self.kind = kind
        if kind == "concat":
            self.join = xavier_linear(2 * width, width)
        elif kind == "attention":
            self.first = _Attention(width)
            self.second = _Attention(width)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.kind == "product":
            return x * y
        if self.kind == "sum":
            return x + y
        if self.kind == "concat":
            return F.relu(self.join(torch.cat([x, y], dim=1)))
        weighed: Tensor = self.first(x) * x + self.second(y) * y
        return weighed


class _Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = xavier_linear(width, width)
        self.outer = xavier_linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.outer(F.relu(self.inner(x))), dim=1)
