"""Adam for the dense parameters: torch.optim.Adam in everything but the time a step takes.

State, settings and state dicts are torch's own, so checkpoints and schedulers see no difference. Parameters torch
would treat in a special way (sparse, on another device, amsgrad, ...) are left to torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from elasticctr import _native

TORCH_ONLY = ("amsgrad", "maximize", "capturable", "differentiable", "decoupled_weight_decay")


class DenseAdam(torch.optim.Adam):
    """torch.optim.Adam whose step is one native pass over all tensors of a group. `weight_decay` is L2."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        if closure is not None or not all(_is_plain(group) for group in self.param_groups):
            return cast("float | None", super().step(closure))
        for group in self.param_groups:
            pairs = [(p, gradient) for p in group["params"] if (gradient := p.grad) is not None]
            if pairs:
                self._step_group(group, pairs)
        return None

    step.hooked = True  # type: ignore[attr-defined]  # torch would wrap it in a profiler's range, for 1 % of a small step

    def _step_group(self, group: dict[str, Any], pairs: list[tuple[Tensor, Tensor]]) -> None:
        parameters = [p for p, _ in pairs]
        states = [self._state_of(p) for p in parameters]
        beta1, beta2 = group["betas"]
        _native.adam_step(
            [p.data_ptr() for p in parameters],
            [gradient.data_ptr() for _, gradient in pairs],
            [s["exp_avg"].data_ptr() for s in states],
            [s["exp_avg_sq"].data_ptr() for s in states],
            [s["step"].data_ptr() for s in states],
            [p.numel() for p in parameters],
            float(group["lr"]),
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
        )
        torch._C._autograd._unsafe_set_version_counter(tuple(parameters), tuple([p._version + 1 for p in parameters]))

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        return state


def _is_plain(group: dict[str, Any]) -> bool:
    if any(
        group.get(name) for name in ("amsgrad", "maximize", "capturable", "differentiable", "decoupled_weight_decay")
    ):
        return False
    return all(_is_plain_tensor(p) and (p.grad is None or _is_plain_tensor(p.grad)) for p in group["params"])


def _is_plain_tensor(tensor: Tensor) -> bool:
    return tensor.is_cpu and tensor.dtype == torch.float32 and tensor.layout == torch.strided and tensor.is_contiguous()
