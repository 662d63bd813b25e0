"""Dice (Zhou et al., DIN, KDD 2018): a PReLU whose kink adapts to the data."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dice(nn.Module):
    """x → x (p + (1 - p) alpha), p = sigmoid of x normalised over the batch; alpha is learned and starts at 0.

    x is [..., width]. In evaluation, and for fewer than two vectors, the running mean and variance are used.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, momentum: float = 0.01, eps: float = 1e-8) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.alpha = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.running_mean, self.running_var
        if self.training:
            vectors = x.flatten(0, -2)
            if len(vectors) > 1:
                var, mean = torch.var_mean(vectors.to(mean.dtype), dim=0, correction=0)
                self._keep(mean.detach(), var.detach())
        p = torch.sigmoid((x - mean) * torch.rsqrt(var + self.eps))
        return x * (self.alpha + (1 - self.alpha) * p)

    def _keep(self, mean: Tensor, var: Tensor) -> None:
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var, self.momentum)
