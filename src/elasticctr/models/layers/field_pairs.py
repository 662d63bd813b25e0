"""Pairs of fields: their dot products one by one, or summed with a learned weight for each pair.

DLRM reads the products, FwFM (Pan et al., WWW 2018) the weighted sum.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class PairDots(nn.Module):
    """[B, fields, K] → [B, pairs]: <v_i, v_j> for all i > j, row after row of the lower triangle."""

    places: Tensor
    back: Tensor

    def __init__(self, fields: int) -> None:
        super().__init__()
        rows, columns = torch.tril_indices(fields, fields, offset=-1)
        self.pairs = len(rows)
        # Where a pair is in the matrix of all products, and which pair an element of that matrix belongs to; the
        # diagonal belongs to a pair past the last.
        back = torch.full((fields, fields), self.pairs)
        back[rows, columns] = torch.arange(self.pairs)
        back[columns, rows] = torch.arange(self.pairs)
        self.register_buffer("places", rows * fields + columns, persistent=False)
        self.register_buffer("back", back.reshape(-1), persistent=False)

    def forward(self, fields: Tensor) -> Tensor:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return cast(Tensor, _PairDots.apply(fields, self.places, self.back))  # type: ignore[no-untyped-call]
        return _dots(fields, self.places)


def _dots(fields: Tensor, places: Tensor) -> Tensor:
    return torch.bmm(fields, fields.transpose(1, 2)).flatten(1).index_select(1, places)


class _PairDots(torch.autograd.Function):
    """With a gradient that gathers where autograd's would scatter."""

    @staticmethod
    def forward(ctx: Any, fields: Tensor, places: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(fields, back)
        return _dots(fields, places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        fields, back = ctx.saved_tensors
        batch, count, _ = fields.shape
        padded = torch.nn.functional.pad(gradient.to(fields.dtype), (0, 1))
        symmetric = padded.index_select(1, back).view(batch, count, count)
        return torch.bmm(symmetric, fields), None, None


class WeightedPairs(nn.Module):
    """[B, fields, K] → [B, 1]: Σ r_ij <v_i, v_j> over all pairs i < j. Every r starts at 1: a factorization machine."""

    rows: Tensor
    columns: Tensor

    def __init__(self, fields: int) -> None:
        super().__init__()
        rows, columns = torch.triu_indices(fields, fields, offset=1)
        self.fields = fields
        self.weight = nn.Parameter(torch.ones(len(rows)))
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns, persistent=False)

    def matrix(self) -> Tensor:
        """[fields, fields], r_ij above the diagonal and zero elsewhere."""
        empty = torch.zeros(self.fields, self.fields, dtype=self.weight.dtype, device=self.weight.device)
        return empty.index_put((self.rows, self.columns), self.weight)

    def forward(self, fields: Tensor) -> Tensor:
        return (fields * torch.matmul(self.matrix(), fields)).flatten(1).sum(dim=1, keepdim=True)
