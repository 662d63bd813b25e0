"""The position of a value in a sequence, counted back from its end: the last value has 1, the target 0.

Histories grow at their end, so the distance of a value means the same in short and long ones, unlike its index.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def distances(lengths: Tensor, max_values: int) -> Tensor:
    """[B, max_values] int64: the distance of each value from the target; 0 for padding."""
    places = torch.arange(max_values, device=lengths.device)
    return (lengths.unsqueeze(1) - places).clamp(min=0)


class Recency(nn.Module):
    """A learned vector for each distance from 0 to `max_values`."""

    def __init__(self, max_values: int, dim: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(max_values + 1, dim)
        nn.init.normal_(self.vectors.weight, std=0.02)

    def forward(self, distances: Tensor) -> Tensor:
        """[...] distances → [..., dim]"""
        vectors: Tensor = self.vectors(distances)
        return vectors
