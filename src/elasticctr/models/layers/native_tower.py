"""Runs a stack of Linear layers, with the ReLU, batch norm and dropout between them, through the native tower, with
gradients, as one step of torch's autograd.

Used only by `MLP`. Parameters stay ordinary torch tensors; only the arithmetic is native. Two settings apply to the
whole process: whether towers are native, and the precision of training steps.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from elasticctr import _native
from elasticctr.errors import ConfigError, FailedPrecondition
from elasticctr.models.layers.norms import BatchNorm

Precision = Literal["fp32", "bf16"]

_enabled = True
_precision: Precision = "fp32"


def set_native_towers(enabled: bool) -> None:
    """Whether towers run natively where possible. If off, every tower is plain torch."""
    global _enabled
    _enabled = enabled


def set_tower_precision(precision: Precision) -> None:
    """Sets the precision of native towers in training mode. Parameters, gradients and evaluation stay float32."""
    global _precision
    if precision not in ("fp32", "bf16"):
        raise ConfigError(f"tower precision must be fp32 or bf16, not {precision!r}")
    _precision = precision


def native_towers_enabled() -> bool:
    return _enabled


def tower_precision() -> Precision:
    """The precision of training steps: bf16 if set here or by torch.autocast."""
    if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16:
        return "bf16"
    return _precision


def can_run(x: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether the matrix and the parameters are real float32 CPU tensors, outside of tracing and compilation."""
    return (
        type(x) is Tensor
        and x.dim() == 2
        and x.dtype == torch.float32
        and x.is_cpu
        and not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and all(p.dtype == torch.float32 and p.is_cpu and p.is_contiguous() for p in parameters)
    )


@functools.lru_cache(maxsize=256)
def tower_for(widths: tuple[int, ...], relu_last: bool, precision: Precision, kernels: str = "") -> _native.Tower:
    """The tower of this shape. It holds no parameters, so modules of equal shape share it."""
    return _native.Tower(list(widths), relu_last, precision, kernels)


@dataclass(frozen=True, slots=True)
class Hidden:
    """What surrounds the ReLUs of a tower: batch norm before each, or none, and dropout after each."""

    norms: Sequence[BatchNorm] = ()
    is_training: bool = False
    dropout: float = 0.0

    def parameters(self) -> list[Tensor]:
        return [*(norm.weight for norm in self.norms), *(norm.bias for norm in self.norms)]

    def buffers(self) -> list[Tensor]:
        return [*(_tensor(n.running_mean) for n in self.norms), *(_tensor(n.running_var) for n in self.norms)]

    def prepare(self, rows: int) -> _native.TowerHidden:
        """Prepares one call with this many rows, which updates the running statistics. Its dropout's seed comes from
        torch's random numbers, so torch's seed decides everything.
        """
        count, norms = len(self.norms), self.norms
        scales_and_shifts, statistics = _addresses(self.parameters()), _addresses(self.buffers())
        if self.is_training and rows > 1:
            for norm in norms:
                _tensor(norm.num_batches_tracked).add_(1)
        return _native.TowerHidden(
            scales_and_shifts[:count],
            scales_and_shifts[count:],
            statistics[:count],
            statistics[count:],
            self.is_training,
            norms[0].eps if norms else 0.0,
            norms[0].momentum or 0.0 if norms else 0.0,
            self.dropout,
            int(torch.randint(1 << 62, ())) if self.dropout > 0 else 0,
        )


PLAIN = Hidden()


def run_tower(
    tower: _native.Tower, x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], hidden: Hidden = PLAIN
) -> Tensor:
    """[rows, last width] for x [rows, first width]. REQUIRES: `can_run`."""
    if x.stride(1) != 1 and x.shape[1] > 1:
        x = x.contiguous()
    parameters = [*weights, *biases, *hidden.parameters()]
    if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in parameters)):
        return _TowerFunction.apply(tower, hidden, len(weights), x, *parameters)  # type: ignore[no-any-return, no-untyped-call]
    y, _ = _forward(tower, hidden, x, weights, biases, keep=False)
    return y


def _tensor(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def _addresses(tensors: Sequence[Tensor]) -> list[int]:
    return [t.data_ptr() for t in tensors]


def _forward(
    tower: _native.Tower, hidden: Hidden, x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], keep: bool
) -> tuple[Tensor, _native.TowerPass | None]:
    rows, columns = x.shape[0], weights[-1].shape[0]
    y = torch.empty(rows, columns)
    kept = tower.forward(
        x.data_ptr(),
        x.stride(0),
        rows,
        _addresses(weights),
        _addresses(biases),
        hidden.prepare(rows),
        y.data_ptr(),
        columns,
        keep,
    )
    return y, kept


class _TowerFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tower: _native.Tower, hidden: Hidden, layers: int, x: Tensor, *parameters: Tensor) -> Tensor:
        weights, biases = parameters[:layers], parameters[layers : 2 * layers]
        y, ctx.kept = _forward(tower, hidden, x, weights, biases, keep=True)
        ctx.norm_widths = [norm.num_features for norm in hidden.norms]
        ctx.tower = tower
        ctx.x_shape = x.shape
        ctx.save_for_backward(*weights)  # so that torch notices a weight changed in between
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            raise FailedPrecondition(
                "a native tower has no gradient of its gradient; call set_native_towers(False) to use create_graph"
            )
        weights = ctx.saved_tensors
        kept, ctx.kept = ctx.kept, None
        if kept is None:
            raise FailedPrecondition(
                "a native tower keeps its activations for one backward pass; "
                "call set_native_towers(False) to use retain_graph"
            )
        rows, columns = ctx.x_shape
        dx = torch.empty(rows, columns) if ctx.needs_input_grad[3] else None
        weight_gradients = [torch.empty_like(w) for w in weights]
        bias_gradients = [torch.empty(w.shape[0]) for w in weights]
        scale_gradients = [torch.empty(width) for width in ctx.norm_widths]
        shift_gradients = [torch.empty(width) for width in ctx.norm_widths]
        if rows > 0:
            dy = dy.contiguous()
            ctx.tower.backward(
                kept,
                dy.data_ptr(),
                dy.shape[1],
                _addresses(weights),
                None if dx is None else dx.data_ptr(),
                columns,
                _addresses(weight_gradients),
                _addresses(bias_gradients),
                _addresses(scale_gradients),
                _addresses(shift_gradients),
            )
        gradients = (*weight_gradients, *bias_gradients, *scale_gradients, *shift_gradients)
        if rows == 0:
            for gradient in gradients:
                gradient.zero_()
        return (None, None, None, dx, *gradients)
