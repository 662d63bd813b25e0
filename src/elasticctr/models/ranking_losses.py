"""Losses that compare a sample with the others of its group: pairwise, and the softmaxes of JRC.

`groups` [B] holds group numbers from 0; samples with the same number are compared.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def pairwise(logits: Tensor, targets: Tensor, weights: Tensor, groups: Tensor, most: int) -> Tensor:
    """Mean of w_i w_j log(1 + exp(z_j - z_i)) over pairs of a positive i and a negative j of one group; 0 without any.

    Each positive is compared with at most `most` negatives, the next positive with the ones that follow, so memory is
    bounded and every negative is used equally often.
    """
    positives, negatives = make_pairs(targets > 0.5, groups, most)
    if len(positives) == 0:
        return logits.new_zeros(())
    losses = F.softplus(logits[negatives] - logits[positives])
    return (losses * weights[positives] * weights[negatives]).mean()


def make_pairs(is_positive: Tensor, groups: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Indices of the positives and of the negatives of all pairs, group by group."""
    order = torch.argsort(groups, stable=True)
    positives, negatives = order[is_positive[order]], order[~is_positive[order]]
    count = int(groups.max()) + 1 if len(groups) else 0
    there = torch.bincount(groups[negatives], minlength=count)  # how many negatives each group has
    first = torch.cumsum(there, 0) - there
    met = torch.bincount(groups[positives], minlength=count)
    rank = torch.arange(len(positives), device=groups.device) - (torch.cumsum(met, 0) - met)[groups[positives]]
    available = there[groups[positives]]
    taken = available.clamp(max=most)
    owner = torch.repeat_interleave(torch.arange(len(positives), device=groups.device), taken)
    turn = torch.arange(len(owner), device=groups.device) - (torch.cumsum(taken, 0) - taken)[owner]
    place = (rank[owner] * taken[owner] + turn) % available[owner].clamp(min=1)
    return positives[owner], negatives[first[groups[positives]][owner] + place]


def generative(logits: Tensor, base: Tensor, targets: Tensor, groups: Tensor) -> Tensor:
    """[B] losses -log p(this sample | its group and outcome), from the outcome's logit: `base` for 0, `base + logits`
    for 1.
    """
    happened = log_softmax(base + logits, groups)
    did_not = log_softmax(base, groups)
    return -(targets * happened + (1 - targets) * did_not)


def log_softmax(logits: Tensor, groups: Tensor) -> Tensor:
    """[B] log of each sample's share of the sum of exp(logits) over its group."""
    if len(logits) == 0:
        return logits
    count = int(groups.max()) + 1
    lowest = logits.new_full((count,), -torch.inf)
    highest = lowest.scatter_reduce(0, groups, logits.detach(), "amax")
    shifted = logits - highest[groups]
    sums = logits.new_zeros(count).index_add(0, groups, torch.exp(shifted))
    return shifted - torch.log(sums)[groups]
