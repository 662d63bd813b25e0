"""Mixtures of experts: towers that read the same features, and gates that weigh them for each label."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from elasticctr.models.layers.mlp import MLP


class Experts(nn.Module):
    """[B, in] → [B, experts, width]: independent towers of one shape."""

    def __init__(self, count: int, make: Callable[[], MLP]) -> None:
        super().__init__()
        self.towers = nn.ModuleList(make() for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([tower(x) for tower in self.towers], dim=1)


class ExpertGate(nn.Module):
    """Weighs experts by a softmax of a linear map of `x`. It starts at zero: every expert counts the same."""

    def __init__(self, in_features: int, experts: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(experts, in_features))

    def shares(self, x: Tensor) -> Tensor:
        """[B, experts], each row sums to 1."""
        return torch.softmax(nn.functional.linear(x, self.weight), dim=1)

    def forward(self, x: Tensor, experts: Tensor) -> Tensor:
        """[B, width]: the weighted mean of experts [B, experts, width]."""
        return torch.einsum("be,bew->bw", self.shares(x), experts)


class Heads(nn.Module):
    """One tower per label, each with one output → [B, labels]."""

    def __init__(self, labels: int, make: Callable[[], MLP]) -> None:
        super().__init__()
        self.towers = nn.ModuleList(make() for _ in range(labels))

    def forward(self, each: Sequence[Tensor]) -> Tensor:
        """`each`: what the head of each label reads."""
        return torch.cat([tower(x) for tower, x in zip(self.towers, each, strict=True)], dim=1)
