"""Gradients of a model that is one tower and at most a linear layer beside it, computed in one native call.

The learner uses this where it gives the same as autograd, and otherwise the general way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from elasticctr.models.inputs import Inputs
from elasticctr.models.layers import native_tower
from elasticctr.models.layers.first_order import FirstOrder
from elasticctr.models.layers.mlp import MLP


@dataclass(frozen=True, slots=True)
class TowerParts:
    """`deep` reads `Inputs.flat` and has one output; `wide`, which reads only the dense floats, is added to it."""

    deep: MLP
    wide: FirstOrder | None = None


class TowerStep:
    def __init__(self, parts: TowerParts) -> None:
        self._deep, self._wide = parts.deep, parts.wide
        layers = self._deep.layers()
        self._weights = [layer.weight for layer in layers]
        self._biases = [layer.bias for layer in layers]
        self._norms = self._deep.native_hidden().parameters()
        self._linear: list[Tensor] = []
        if self._wide is not None and self._wide.weight is not None:
            self._linear = [self._wide.weight, self._wide.bias]
        self._parameters = [*self._weights, *self._biases, *self._norms, *self._linear]
        # Reused from step to step; each step overwrites them completely.
        self.keep_gradients({})
        self._dx = torch.empty(0, 0)
        self._checked: list[int] = []  # addresses of parameters known to suit a native tower

    def keep_gradients(self, places: Mapping[Tensor, Tensor]) -> None:
        """Writes the gradients of these parameters there from now on, and those of others into its own memory."""
        self._gradients = [places[p] if p in places else torch.empty_like(p) for p in self._parameters]
        self._gradient_addresses = [g.data_ptr() for g in self._gradients]

    def can_run(self, inputs: Inputs) -> bool:
        return (
            len(inputs.flat) > 0
            and self._deep.has_native_form()
            and native_tower.can_run(inputs.flat, ())
            and inputs.flat.is_contiguous()
            and all(p.requires_grad for p in self._parameters)
            and self._are_parameters_fit(inputs.flat)
            and not torch.is_autocast_enabled("cpu")
        )

    def _are_parameters_fit(self, x: Tensor) -> bool:
        # A change of type, device or layout also changes the memory.
        addresses = [p.data_ptr() for p in self._parameters]
        if addresses != self._checked:
            if not native_tower.can_run(x, self._parameters):
                return False
            self._checked = addresses
        return True

    def run(self, inputs: Inputs, labels: Tensor, weights: Tensor) -> tuple[float, Tensor]:
        """The mean binary cross-entropy and the logits; gradients go to `grad` of the parameters and of `flat`, and
        are valid until the next call.

        REQUIRES: `can_run`; labels [B] and contiguous weights [B], both float32.
        """
        x = inputs.flat
        rows, columns = x.shape
        logits = torch.empty(rows)
        if self._dx.shape != x.shape:
            self._dx = torch.empty(rows, columns)
        layers, norms = len(self._weights), len(self._norms) // 2
        addresses, gradients = self._checked, self._gradient_addresses
        shifts, linear = 2 * layers + norms, 2 * layers + 2 * norms
        tower = native_tower.tower_for(self._deep.widths, False, native_tower.tower_precision())
        loss = tower.step(
            x.data_ptr(),
            columns,
            rows,
            addresses[:layers],
            addresses[layers : 2 * layers],
            self._deep.native_hidden().prepare(rows),
            inputs.spec.pooled_width,
            inputs.spec.dense_dim if self._linear else 0,
            addresses[linear:] + gradients[linear:],
            labels.data_ptr(),
            labels.stride(0),
            weights.data_ptr(),
            logits.data_ptr(),
            self._dx.data_ptr(),
            gradients[:layers],
            gradients[layers : 2 * layers],
            gradients[2 * layers : shifts],
            gradients[shifts:linear],
        )
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        x.grad = self._dx
        return loss, logits
