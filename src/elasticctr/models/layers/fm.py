"""Factorization machine: the sum of x_i x_j <v_i, v_j> over all pairs of features, in linear time.

Rendle, Factorization Machines, ICDM 2010. For each of the K columns the pair sum is ((Σ v)² - Σ v²) / 2.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import field_embeddings


class Pairs(nn.Module):
    """Inputs → [B, 1]. With `dense_pairs`, dense float j takes part as x_j times a learned vector."""

    fold: Tensor

    def __init__(self, spec: InputSpec, dim: int, dense_pairs: bool = True) -> None:
        super().__init__()
        # [fields * K, K] of ones and zeros: a product with it sums the fields several times faster than sum(dim=1).
        fields = len(spec.embedded_slots) + len(spec.sequences)
        self.register_buffer("fold", torch.eye(dim).repeat(fields, 1), persistent=False)
        has_dense = dense_pairs and spec.dense_dim > 0
        self.dense_vectors = nn.Parameter(torch.empty(spec.dense_dim, dim)) if has_dense else None
        if self.dense_vectors is not None:
            nn.init.normal_(self.dense_vectors, std=0.01)

    def forward(self, inputs: Inputs) -> Tensor:
        device = inputs.flat.device.type
        if torch.is_autocast_enabled(device):
            # bfloat16's eight bits of mantissa are too few for the difference of two large sums.
            with torch.autocast(device, enabled=False):
                return self._pairs(inputs)
        return self._pairs(inputs)

    def _pairs(self, inputs: Inputs) -> Tensor:
        embeddings = field_embeddings(inputs)
        if self.dense_vectors is None:
            return pair_sum(embeddings, self.fold)
        dense = inputs.dense.detach() if self.training else inputs.dense  # as in FirstOrder
        norms = (self.dense_vectors * self.dense_vectors).sum(dim=1, keepdim=True)
        return pair_sum(embeddings, self.fold, dense @ self.dense_vectors) - 0.5 * (dense * dense) @ norms


def pair_sum(embeddings: Tensor, fold: Tensor, others: Tensor | None = None) -> Tensor:
    """[B, 1]: ((Σ v + others)² - Σ v²) / 2, summed over the K columns, for `others` [B, K]."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return cast(Tensor, _PairSum.apply(embeddings, fold, others))  # type: ignore[no-untyped-call]
    total = embeddings @ fold
    if others is not None:
        total = total + others
    return 0.5 * ((total * total).sum(dim=1, keepdim=True) - (embeddings * embeddings).sum(dim=1, keepdim=True))


class _PairSum(torch.autograd.Function):
    """The same with its gradient, g (Σ v + others - v), written in two passes over the embeddings instead of seven."""

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, fold: Tensor, others: Tensor | None) -> Tensor:
        total = embeddings @ fold
        if others is not None:
            total += others
        ctx.save_for_backward(embeddings, fold, total)
        ctx.has_others = others is not None
        squares = torch.linalg.vector_norm(embeddings, dim=1, keepdim=True).square_()
        return (total * total).sum(dim=1, keepdim=True).sub_(squares).mul_(0.5)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor | None]:
        embeddings, fold, total = ctx.saved_tensors
        scaled = total * gradient
        result = (scaled @ fold.T).addcmul_(embeddings, gradient, value=-1.0)
        return result, None, scaled if ctx.has_others else None
