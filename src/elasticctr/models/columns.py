"""Views of the column ranges of a model's flat input whose gradients meet in one buffer.

Plain slices would each give their backward pass a zero-filled tensor of the full width, and add those up: for a
factorization machine beside a tower that costs more than the machine itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Columns(NamedTuple):
    linear: Tensor
    embeddings: Tensor
    dense: Tensor
    deep: Tensor  # embeddings and dense


def is_recorded(flat: Tensor) -> bool:
    """Whether gradients are being recorded, by autograd itself and not by a compiler or exporter."""
    return flat.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling()


def read_columns(flat: Tensor, linear: int, pooled: int) -> Columns:
    """Columns [0, linear), [linear, pooled), [pooled, end) and [linear, end) of `flat`, without a copy."""
    if is_recorded(flat):
        return Columns(*_Read.apply(flat, linear, pooled))  # type: ignore[no-untyped-call]
    return _slices(flat, linear, pooled)


def _slices(flat: Tensor, linear: int, pooled: int) -> Columns:
    return Columns(flat[:, :linear], flat[:, linear:pooled], flat[:, pooled:], flat[:, linear:])


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flat: Tensor, linear: int, pooled: int) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.shape, ctx.edges = flat.shape, (linear, pooled)
        return tuple(_slices(flat, linear, pooled))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:
        deep = gradients[3]
        given = [gradient for gradient in gradients if gradient is not None]
        if not given:
            return None, None, None
        if len(given) == 1 and deep is not None and deep.shape == ctx.shape:
            return deep, None, None
        total = torch.empty(ctx.shape, dtype=given[0].dtype, device=given[0].device)
        parts = _slices(total, *ctx.edges)
        _put(parts.linear, gradients[0])
        if deep is not None:
            parts.deep.copy_(deep)
            for part, gradient in ((parts.embeddings, gradients[1]), (parts.dense, gradients[2])):
                if gradient is not None:
                    part.add_(gradient)
        else:
            _put(parts.embeddings, gradients[1])
            _put(parts.dense, gradients[2])
        return total, None, None


def _put(part: Tensor, gradient: Tensor | None) -> None:
    if gradient is None:
        part.zero_()
    else:
        part.copy_(gradient)
