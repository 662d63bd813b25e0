"""Losses in addition to that of the logits, one number per sample, returned by `Model.training_forward`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def distillation(students: Sequence[Tensor], teacher: Tensor) -> Tensor:
    """How far the students' logits are from the teacher's probabilities: the sum of their cross-entropies, in the shape
    of the logits. The teacher does not learn from it.
    """
    if teacher.dtype in (torch.bfloat16, torch.float16):
        students, teacher = [student.float() for student in students], teacher.float()
    p = torch.sigmoid(teacher.detach())
    return torch.stack([F.binary_cross_entropy_with_logits(s, p, reduction="none") for s in students]).sum(dim=0)


def next_value_losses(states: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """[B]: the loss of distinguishing the next value by the states [B, T, dim] from another sample's (its neighbour's
    in the batch, at the same position). The mean over the batch is the mean cross-entropy of the inner
    products over all positions, so that a long history counts more than a short one.
    """
    before, after = states[:, :-1], keys[:, 1:]
    strange = after.roll(1, 0)
    is_next = mask[:, 1:]
    is_strange = is_next & is_next.roll(1, 0)
    right = F.softplus(-(before * after).sum(dim=2)).masked_fill(~is_next, 0.0).sum(dim=1)
    wrong = F.softplus((before * strange).sum(dim=2)).masked_fill(~is_strange, 0.0).sum(dim=1)
    return len(mask) * (right / is_next.sum().clamp(min=1) + wrong / is_strange.sum().clamp(min=1)) / 2
