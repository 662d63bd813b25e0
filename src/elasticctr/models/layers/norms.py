"""Batch normalisation that accepts batches of any size, and normalisation by field."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm1d):
    """nn.BatchNorm1d, except that a training batch of fewer than two samples is normalised as in evaluation: the last
    batch of an epoch can be that small, and has no variance.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.shape[0] < 2:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(x)


class FieldNorm(nn.Module):
    """[B, fields * K] → the same, each field brought to mean 0 and variance 1, then scaled and moved by its own
    weights.
    """

    def __init__(self, fields: int, dim: int) -> None:
        super().__init__()
        self.fields, self.dim = fields, dim
        self.weight = nn.Parameter(torch.ones(fields * dim))
        self.bias = nn.Parameter(torch.zeros(fields * dim))

    def forward(self, x: Tensor) -> Tensor:
        normal = F.layer_norm(x.reshape(-1, self.fields, self.dim), (self.dim,))
        return torch.addcmul(self.bias, normal.reshape(-1, self.fields * self.dim), self.weight)
