"""A second loss that a model adds to its own gradients, whatever the loss of its logits is.

The reported loss stays that of the logits, so that runs with and without it can be compared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


class _Auxiliary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, loss: Tensor) -> Tensor:
        ctx.kind = (loss.shape, loss.dtype)
        return logits.view_as(logits)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        shape, dtype = ctx.kind
        return gradient, gradient.new_ones(shape, dtype=dtype)


def add_auxiliary(logits: Tensor, loss: Tensor) -> Tensor:
    """The same logits; going back from them also goes back from `loss`, a mean over the batch."""
    added: Tensor = _Auxiliary.apply(logits, loss)  # type: ignore[no-untyped-call]
    return added


def next_value_loss(states: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """How badly the state [B, T, dim] after a position tells the next value from another sample's (its neighbour's in
    the batch, at the same position): mean cross-entropy of the inner products.
    """
    before, after = states[:, :-1], keys[:, 1:]
    strange = after.roll(1, 0)
    is_next = mask[:, 1:]
    is_strange = is_next & is_next.roll(1, 0)
    right = F.softplus(-(before * after).sum(dim=2)).masked_fill(~is_next, 0.0).sum() / is_next.sum().clamp(min=1)
    wrong = F.softplus((before * strange).sum(dim=2)).masked_fill(~is_strange, 0.0).sum()
    return (right + wrong / is_strange.sum().clamp(min=1)) / 2
