"""Linear layers whose weights start as xavier normal and biases as zero."""

from __future__ import annotations

from torch import nn


def xavier_linear(in_features: int, out_features: int, bias: bool = True) -> nn.Linear:
    linear = nn.Linear(in_features, out_features, bias=bias)
    nn.init.xavier_normal_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
