"""The multi-layer perceptron used as the tower of every model: Linear, activation, ..., Linear.

Its parameters belong to ordinary nn.Linear modules, so state dicts, optimizers and export need no special cases.
Training uses the native tower where that computes the same, and torch otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from elasticctr.errors import ConfigError
from elasticctr.models.layers import native_tower
from elasticctr.models.layers.dice import Dice
from elasticctr.models.layers.norms import BatchNorm

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "leaky_relu": nn.LeakyReLU,
    "dice": nn.Identity,  # each layer has its own Dice
}


class MLP(nn.Module):
    """Hidden layers with an activation each, then a Linear of `out_features`, or nothing if that is None.

    Weights start as normal(std = 1 / sqrt(fan_in)), biases as zero. Dropout follows each hidden activation, batch
    norm precedes it.
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        out_features: int | None = 1,
        dropout: float = 0.0,
        batch_norm: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ConfigError(f"unknown activation {activation!r}; known: {', '.join(sorted(ACTIVATIONS))}")
        if not 0.0 <= dropout < 1.0:
            raise ConfigError(f"dropout must be from 0 to below 1, not {dropout}")
        widths = (in_features, *hidden, *([] if out_features is None else [out_features]))
        if len(widths) < 2 or min(widths) < 1:
            raise ConfigError(f"an MLP needs an input and at least one layer, each at least 1 wide; got {list(widths)}")
        self.widths = widths
        self.out_features = widths[-1]
        self.relu_last = out_features is None
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(BatchNorm(width) for width in hidden) if batch_norm else None
        self.activation = ACTIVATIONS[activation]()
        self.dices = nn.ModuleList(Dice(width) for width in hidden) if activation == "dice" else None
        self.dropout = nn.Dropout(dropout) if dropout > 0 else None
        self.hidden = len(hidden)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for linear in self.layers():
            nn.init.normal_(linear.weight, std=1.0 / math.sqrt(linear.in_features))
            nn.init.zeros_(linear.bias)

    def layers(self) -> list[nn.Linear]:
        return cast("list[nn.Linear]", list(self.linears))

    def forward(self, x: Tensor) -> Tensor:
        if self.has_native_form():
            layers, hidden = self.layers(), self.native_hidden()
            weights = [layer.weight for layer in layers]
            biases = [layer.bias for layer in layers]
            if native_tower.can_run(x, [*weights, *biases, *hidden.parameters(), *hidden.buffers()]):
                precision = native_tower.tower_precision() if self.training else "fp32"
                tower = native_tower.tower_for(self.widths, self.relu_last, precision)
                return native_tower.run_tower(tower, x, weights, biases, hidden)
        for index, linear in enumerate(self.linears):
            x = linear(x)
            if index < self.hidden:
                x = x if self.norms is None else self.norms[index](x)
                x = self.activation(x) if self.dices is None else self.dices[index](x)
                x = x if self.dropout is None else self.dropout(x)
        return x

    def has_native_form(self) -> bool:
        """Whether the native tower computes the same in the module's current mode."""
        return (
            native_tower.native_towers_enabled()
            and isinstance(self.activation, nn.ReLU)
            and (self.norms is None or all(norm.training == self.training for norm in self.norms))
        )

    def native_hidden(self) -> native_tower.Hidden:
        """Batch norm and dropout for the native tower, in the module's current mode."""
        norms = [] if self.norms is None else cast("list[BatchNorm]", list(self.norms))
        dropout = self.dropout.p if self.dropout is not None and self.dropout.training else 0.0
        return native_tower.Hidden(norms, self.training, dropout)
