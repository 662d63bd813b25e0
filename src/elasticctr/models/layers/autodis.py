"""AutoDis (Guo et al., KDD 2021): learned embeddings of numbers. Each number is softly assigned to `buckets` meta
embeddings of its column, so that nearby numbers share what they learn and the edges are learned too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elasticctr.errors import ConfigError

_SLOPE = 0.01  # of the leaky ReLU


class AutoDis(nn.Module):
    """[B, columns] numbers -> [B, columns, dim] embeddings.

    h = leaky_relu(w * x); scores = W h + skip * h; weights = softmax(scores / temperature); e = weights @ meta.
    Numbers should be of moderate size: give dense slots a transform (log1p, scale).
    """

    def __init__(self, columns: int, dim: int, buckets: int = 16, temperature: float = 0.1, skip: float = 0.1) -> None:
        super().__init__()
        if columns < 1:
            raise ConfigError("learned embeddings of numbers need a dense slot; the schema has none")
        self.temperature = temperature
        self.skip = skip
        self.first = nn.Parameter(torch.empty(columns, buckets))
        self.second = nn.Parameter(torch.empty(columns, buckets, buckets))
        self.meta = nn.Parameter(torch.empty(columns, buckets, dim))
        nn.init.xavier_uniform_(self.first)
        nn.init.xavier_uniform_(self.second.view(columns * buckets, buckets))
        nn.init.normal_(self.meta, std=0.01)

    def forward(self, numbers: Tensor) -> Tensor:
        # Columns first, so that each product is one batched matrix product over the columns.
        hidden = nn.functional.leaky_relu(numbers.t().unsqueeze(2) * self.first.unsqueeze(1), _SLOPE)  # [C, B, H]
        scores = torch.bmm(hidden, self.second) + self.skip * hidden
        return torch.bmm(torch.softmax(scores / self.temperature, dim=2), self.meta).transpose(0, 1)
