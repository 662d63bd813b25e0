"""A stack of linear layers, the deep part of most models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


class MLP(nn.Module):
    """[B, in_features] → [B, out_features], or [B, hidden[-1]] after its activation if `out_features` is None."""

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        out_features: int | None = 1,
        dropout: float = 0.0,
        batch_norm: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = in_features
        for size in hidden:
            layers.append(nn.Linear(width, size))
            if batch_norm:
                layers.append(nn.BatchNorm1d(size))
            layers.append(ACTIVATIONS[activation]())
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
            width = size
        if out_features is not None:
            layers.append(nn.Linear(width, out_features))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.layers(x))
