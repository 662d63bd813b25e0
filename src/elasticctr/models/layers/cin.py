"""Compressed interaction network (Lian et al., xDeepFM, KDD 2018).

Layer l has H_l maps, each a learned mix of all products of a map of layer l - 1 and a field, column by column of the
embeddings: x_h = Σ_ij W_hij (x_i ∘ field_j) + b_h. Samples and columns are one axis here. On the CPU a native kernel
does this; elsewhere a layer is a matrix product whose left side, rows of H * F products, is made piece by piece and
never stored as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elasticctr.models.layers import native_fields

_PIECE = 1 << 19  # floats of products at a time, which fit a core's cache


class CIN(nn.Module):
    """[B, fields, K] → [B, out_features]: maps of all layers, summed over the K columns.

    With `split_half`, half of a layer's maps go to the output and the other half to the next layer. All maps of the
    last layer go to the output, and so does the only map of a layer of one.
    """

    def __init__(self, fields: int, layers: Sequence[int], split_half: bool = False) -> None:
        super().__init__()
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        self.kept: list[int] = []  # maps of each layer that go to the output
        before = fields
        for number, maps in enumerate(layers):
            weight = torch.empty(maps, before * fields)
            nn.init.normal_(weight, std=1.0 / math.sqrt(before * fields))
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(maps)))
            is_split = split_half and maps > 1 and number + 1 < len(layers)
            self.kept.append(maps - maps // 2 if is_split else maps)
            before = maps // 2 if is_split else maps
        self.out_features = sum(self.kept)

    def forward(self, fields: Tensor) -> Tensor:
        if native_fields.can_run(fields, *self.weights):
            return self._forward_natively(fields)
        batch, count, dim = fields.shape
        first = fields.transpose(1, 2).reshape(batch * dim, count)
        maps, outputs = first, []
        for weight, bias, kept in zip(self.weights, self.biases, self.kept, strict=True):
            mixed = mix_products(maps, first, weight) + bias
            outputs.append(mixed[:, :kept])
            maps = mixed[:, kept:] if kept < mixed.shape[1] else mixed
        return torch.cat(outputs, dim=1).reshape(batch, dim, self.out_features).sum(dim=1)

    def _forward_natively(self, fields: Tensor) -> Tensor:
        """The same with maps as rows."""
        batch, count, dim = fields.shape
        first = fields.transpose(0, 1).reshape(count, batch * dim)
        maps, outputs = first, []
        for weight, bias, kept in zip(self.weights, self.biases, self.kept, strict=True):
            mixed = native_fields.mix_rows(maps, first, weight) + bias.unsqueeze(1)
            outputs.append(mixed[:kept])
            maps = mixed[kept:] if kept < len(mixed) else mixed
        return torch.cat(outputs).reshape(self.out_features, batch, dim).sum(dim=2).T


def mix_products(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """[N, out]: Σ_ij weight[out, i * R + j] left[n, i] right[n, j] for left [N, L] and right [N, R]."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return cast(Tensor, _MixProducts.apply(left, right, weight))  # type: ignore[no-untyped-call]
    return _products(left, right) @ weight.T


def _products(left: Tensor, right: Tensor) -> Tensor:
    return (left.unsqueeze(2) * right.unsqueeze(1)).flatten(1)


class _MixProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(left, right, weight)
        result = torch.empty(len(left), len(weight), dtype=left.dtype, device=left.device)
        for rows in _pieces(left, weight):
            torch.mm(_products(left[rows], right[rows]), weight.T, out=result[rows])
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        left, right, weight = ctx.saved_tensors
        to_left, to_right, to_weight = torch.empty_like(left), torch.empty_like(right), torch.zeros_like(weight)
        for rows in _pieces(left, weight):
            a, b, g = left[rows], right[rows], gradient[rows]
            to_weight.addmm_(g.T, _products(a, b))
            products = (g @ weight).view(len(a), a.shape[1], b.shape[1])
            to_left[rows] = torch.bmm(products, b.unsqueeze(2)).squeeze(2)
            to_right[rows] = torch.bmm(a.unsqueeze(1), products).squeeze(1)
        return to_left, to_right, to_weight


def _pieces(left: Tensor, weight: Tensor) -> list[slice]:
    size = max(_PIECE // weight.shape[1], 1)
    return [slice(start, start + size) for start in range(0, len(left), size)]
