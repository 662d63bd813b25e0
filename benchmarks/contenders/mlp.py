"""The limit: only the dense tower on random input, forward, backward (input gradient included) and fused Adam.

Variants: eager, compiled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import torch
import torch_net
from clicks import LEARNING_RATE, Rows
from numpy.typing import NDArray
from torch.nn import functional as F
from worker import Order, Stack, serve


class Tower(Stack):
    def __init__(self, order: Order, seed: int) -> None:
        torch_net.set_up(seed)
        tower = torch_net.make_tower()
        self._optimizer = torch.optim.Adam(tower.parameters(), lr=LEARNING_RATE, fused=True)
        self.version = torch_net.describe(order.variant == "compiled")
        self._forward = torch.compile(tower) if order.variant == "compiled" else tower
        self._precision = order.precision
        self._input = torch.randn(order.batch_size, torch_net.INPUTS, requires_grad=True)
        self._labels = (torch.rand(order.batch_size) < 0.25).float()

    def stream(self, rows: Rows, batch_size: int) -> Iterator[None]:
        return itertools.repeat(None)

    def step(self, batch: None) -> None:
        self._input.grad = None
        self._optimizer.zero_grad(set_to_none=True)
        with torch_net.autocast(self._precision):
            logits = self._forward(self._input).squeeze(1)
        F.binary_cross_entropy_with_logits(logits.float(), self._labels).backward()
        self._optimizer.step()

    def predict(self, rows: Rows) -> NDArray[np.float32]:
        raise NotImplementedError("the tower alone predicts nothing")


if __name__ == "__main__":
    serve(Tower)
