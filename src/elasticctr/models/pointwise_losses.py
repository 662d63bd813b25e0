"""Losses of single samples. All are computed from log-sigmoids, so that logits of any size give finite losses and
gradients.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def cross_entropy(logits: Tensor, targets: Tensor, positive_weight: float) -> Tensor:
    """[B] losses; targets may lie between 0 and 1."""
    scale = None if positive_weight == 1.0 else torch.tensor(positive_weight, dtype=logits.dtype, device=logits.device)
    return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=scale, reduction="none")


def focal(logits: Tensor, targets: Tensor, positive_weight: float, gamma: float) -> Tensor:
    """Cross-entropy times (1 - p of the truth)^gamma."""
    # (1 - p)^gamma = exp(gamma log(1 - p)) avoids the power of a number that rounds to zero.
    log_p, log_not_p = F.logsigmoid(logits), F.logsigmoid(-logits)
    positive = positive_weight * targets * torch.exp(gamma * log_not_p) * log_p
    negative = (1 - targets) * torch.exp(gamma * log_p) * log_not_p
    return -(positive + negative)


def fake_negative_weighted(logits: Tensor, targets: Tensor, positive_weight: float) -> Tensor:
    """Cross-entropy on a log in which every positive appears twice: as a negative when it is shown, and as a positive
    when the event happens. The weights 1 + p and (1 - p)(1 + p) correct for that. They are computed from the model's
    own predictions; no gradient passes through them.
    """
    p = torch.sigmoid(logits).detach()
    positive = positive_weight * targets * (1 + p) * F.logsigmoid(logits)
    negative = (1 - targets) * (1 - p) * (1 + p) * F.logsigmoid(-logits)
    return -(positive + negative)


def with_fake_negatives(logits: Tensor) -> Tensor:
    """Logits of the events in such a log: a share p / (1 + p) of its samples is positive, so the odds are p."""
    return F.logsigmoid(logits)


def with_sampled_negatives(logits: Tensor, rate: float) -> Tensor:
    """Logits of the events in a log that kept only a share `rate` of its negatives: the odds are 1 / rate times as
    high.
    """
    return logits - math.log(rate)
