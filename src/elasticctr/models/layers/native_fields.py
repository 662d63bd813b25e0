"""Native kernels, with gradients, for layers over the fields of a sample, whose axes are too short for torch's
products: attention among fields and mixes of their products. Used by `SelfAttention` and `CIN`.

They run where towers do: on the CPU, in float32, unless `set_native_towers` turned them off.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elasticctr import _native
from elasticctr.models.layers.native_tower import native_towers_enabled


def can_run(*tensors: Tensor) -> bool:
    """Whether these are real float32 CPU tensors, outside of tracing and compilation."""
    return (
        native_towers_enabled()
        and not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and all(type(t) in (Tensor, nn.Parameter) and t.dtype == torch.float32 and t.is_cpu for t in tensors)
    )


def attend(projected: Tensor, heads: int, head_dim: int, scale: float) -> Tensor:
    """[B, fields, heads * head_dim]: relu(softmax(scale Q Kᵀ) V + R) for projected [B, fields, 4 * heads * head_dim],
    which holds Q, K, V and R. REQUIRES: `can_run`.
    """
    attention = _attention_for(projected.shape[1], heads, head_dim, scale)
    return cast(Tensor, _Attend.apply(projected, attention, heads * head_dim))  # type: ignore[no-untyped-call]


def mix_rows(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """[out, N]: Σ_ij weight[out, i * R + j] left[i, n] right[j, n] for left [L, N] and right [R, N].
    REQUIRES: `can_run`.
    """
    return cast(Tensor, _MixRows.apply(left, right, weight))  # type: ignore[no-untyped-call]


@functools.lru_cache(maxsize=256)
def _attention_for(fields: int, heads: int, head_dim: int, scale: float) -> _native.FieldAttention:
    return _native.FieldAttention(fields, heads, head_dim, scale)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, attention: _native.FieldAttention, width: int) -> Tensor:
        projected = projected.contiguous()
        result = torch.empty(*projected.shape[:2], width)
        attention.forward(projected.data_ptr(), len(projected), result.data_ptr())
        ctx.save_for_backward(projected, result)
        ctx.attention = attention
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        projected, result = ctx.saved_tensors
        gradient = gradient.contiguous()
        to_projected = torch.empty_like(projected)
        ctx.attention.backward(
            projected.data_ptr(), result.data_ptr(), gradient.data_ptr(), len(projected), to_projected.data_ptr()
        )
        return to_projected, None, None


class _MixRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
        left, right, weight = left.contiguous(), right.contiguous(), weight.contiguous()
        result = torch.empty(len(weight), left.shape[1])
        ctx.mix = _native.ProductMix(len(left), len(right), len(weight))
        ctx.mix.forward(left.data_ptr(), right.data_ptr(), weight.data_ptr(), left.shape[1], result.data_ptr())
        ctx.save_for_backward(left, right, weight)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        left, right, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        gradients = torch.empty_like(left), torch.empty_like(right), torch.empty_like(weight)
        ctx.mix.backward(
            left.data_ptr(),
            right.data_ptr(),
            weight.data_ptr(),
            gradient.data_ptr(),
            left.shape[1],
            *(g.data_ptr() for g in gradients),
        )
        return gradients
