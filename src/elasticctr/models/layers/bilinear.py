"""Products of pairs of fields with a matrix between them, as vectors: p_ij = (v_i W) * v_j for i < j.

Huang et al., FiBiNET, RecSys 2019. W is one matrix (`all`), one per left field (`each`) or one per pair
(`interaction`). Pairs are ordered (0, 1), (0, 2), ..., (1, 2), ...
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

BilinearKind = Literal["all", "each", "interaction"]


class Bilinear(nn.Module):
    """[B, fields, K] → [B, pairs * K]."""

    left: Tensor
    right: Tensor

    def __init__(self, fields: int, dim: int, kind: BilinearKind) -> None:
        super().__init__()
        self.fields, self.dim, self.kind = fields, dim, kind
        pairs = list(itertools.combinations(range(fields), 2))
        self.width = len(pairs) * dim
        self.register_buffer("left", torch.tensor([i for i, _ in pairs], dtype=torch.int64), persistent=False)
        self.register_buffer("right", torch.tensor([j for _, j in pairs], dtype=torch.int64), persistent=False)
        matrices = {"all": 1, "each": fields - 1, "interaction": len(pairs)}[kind]
        self.weight = nn.Parameter(torch.empty(matrices, dim, dim))
        nn.init.normal_(self.weight, std=1.0 / math.sqrt(dim))

    def forward(self, fields: Tensor) -> Tensor:
        if self.kind == "all":
            left = fields @ self.weight[0]
        elif self.kind == "each":
            left = torch.einsum("bik,ikl->bil", fields[:, :-1], self.weight)
        else:
            left = self._transform_by_pair(fields)
        return self._multiply(left.to(fields.dtype), fields).flatten(1)

    def _transform_by_pair(self, fields: Tensor) -> Tensor:
        """[B, pairs, K]: one product per left field with the concatenated matrices of all its pairs."""
        counts = list(range(self.fields - 1, 0, -1))
        columns = torch.split(self.weight.permute(1, 0, 2).reshape(self.dim, -1), [n * self.dim for n in counts], dim=1)
        parts = [v @ w for v, w in zip(fields.unbind(1), columns, strict=False)]
        return torch.cat(parts, dim=1).reshape(-1, self.width // self.dim, self.dim)

    def _multiply(self, left: Tensor, right: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            expanded = left if self.kind == "interaction" else left[:, self.left]
            return expanded * right[:, self.right]
        if self.kind == "interaction":
            return cast(Tensor, _PairProducts.apply(left, right, True))  # type: ignore[no-untyped-call]
        return cast(Tensor, _PairProducts.apply(left, right, False))  # type: ignore[no-untyped-call]


class _PairProducts(torch.autograd.Function):
    """left_i * right_j for all i < j, field by field, without a copy of a field for each pair, forward or backward.

    If `by_pair`, left holds one vector per pair already.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, by_pair: bool) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.by_pair = by_pair
        batch, fields, dim = right.shape
        out = left.new_empty(batch, fields * (fields - 1) // 2, dim)
        for i, begin, end in _segments(fields):
            lefts = left[:, begin:end] if by_pair else left[:, i : i + 1]
            torch.mul(lefts, right[:, i + 1 :], out=out[:, begin:end])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        left, right = ctx.saved_tensors
        to_left = torch.zeros_like(left)
        to_right = torch.zeros_like(right)
        for i, begin, end in _segments(right.shape[1]):
            part = gradient[:, begin:end]
            if ctx.by_pair:
                torch.mul(part, right[:, i + 1 :], out=to_left[:, begin:end])
                to_right[:, i + 1 :].addcmul_(part, left[:, begin:end])
            else:
                torch.sum(part * right[:, i + 1 :], dim=1, out=to_left[:, i])
                to_right[:, i + 1 :].addcmul_(part, left[:, i : i + 1])
        return to_left, to_right, None


def _segments(fields: int) -> list[tuple[int, int, int]]:
    """(left field, its first pair, one past its last pair)"""
    ends = list(itertools.accumulate(range(fields - 1, 0, -1)))
    return [(i, begin, end) for i, (begin, end) in enumerate(itertools.pairwise([0, *ends]))]
