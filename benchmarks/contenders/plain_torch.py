"""Wide&Deep in plain PyTorch, with the usual ways to speed it up.

dense     nn.Embedding with dense gradients, fused Adam over everything
sparse    nn.Embedding(sparse=True) with SparseAdam
bag       nn.EmbeddingBag(sparse=True), one bag per sample and slot, with SparseAdam
lazy      torch.unique, and a hand-written Adam on the touched rows
A variant ending in `_compiled` runs the dense part through torch.compile; bf16 puts it under autocast.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
import torch
import torch_net
from clicks import DIM, LEARNING_RATE, SLOTS, TABLE, Rows
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from worker import Order, Stack, serve

Tensors = tuple[Tensor, Tensor, Tensor]


class PlainTorch(Stack):
    def __init__(self, order: Order, seed: int) -> None:
        torch_net.set_up(seed)
        self._precision = order.precision
        self._net = torch_net.WideDeep()
        is_compiled = order.variant.endswith("_compiled")
        self.version = torch_net.describe(is_compiled)
        self._forward = torch.compile(self._net) if is_compiled else self._net
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Adam(self._net.parameters(), lr=LEARNING_RATE, fused=True)
        ]

    def prepare(self, rows: Rows) -> Tensors:
        return torch.from_numpy(rows.dense), torch.from_numpy(rows.ids), torch.from_numpy(rows.labels)

    def step(self, batch: Tensors) -> None:
        dense, ids, labels = batch
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        F.binary_cross_entropy_with_logits(self._logits(self.look_up(ids), dense), labels).backward()
        for optimizer in self._optimizers:
            optimizer.step()

    @torch.no_grad()
    def predict(self, rows: Rows) -> NDArray[np.float32]:
        dense, ids, _ = self.prepare(rows)
        return self._logits(self.look_up(ids), dense).sigmoid().numpy()

    @abstractmethod
    def look_up(self, ids: Tensor) -> Tensor:
        """[B, slots] → [B, slots, dim]"""

    def _logits(self, embeddings: Tensor, dense: Tensor) -> Tensor:
        with torch_net.autocast(self._precision):
            logits = self._forward(embeddings, dense)
        return logits.float()


class EmbeddingTorch(PlainTorch):
    def __init__(self, order: Order, seed: int) -> None:
        super().__init__(order, seed)
        sparse = order.variant.startswith("sparse")
        self._table = nn.Embedding(TABLE, DIM, _weight=_draw_table(), sparse=sparse)
        parameters = self._table.parameters()
        self._optimizers.append(
            torch.optim.SparseAdam(parameters, lr=LEARNING_RATE)
            if sparse
            else torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)
        )

    def look_up(self, ids: Tensor) -> Tensor:
        return self._table(ids)


class BagTorch(PlainTorch):
    def __init__(self, order: Order, seed: int) -> None:
        super().__init__(order, seed)
        self._table = nn.EmbeddingBag(TABLE, DIM, _weight=_draw_table(), sparse=True, mode="sum")
        self._starts = torch.arange(order.batch_size * SLOTS)
        self._optimizers.append(torch.optim.SparseAdam(self._table.parameters(), lr=LEARNING_RATE))

    def look_up(self, ids: Tensor) -> Tensor:
        return self._table(ids.reshape(-1), self._starts[: ids.numel()]).view(len(ids), SLOTS * DIM)


class LazyTorch(PlainTorch):
    """Rows are gathered once per distinct id; Adam's moments move only where there is a gradient."""

    def __init__(self, order: Order, seed: int) -> None:
        super().__init__(order, seed)
        self._weights = _draw_table()
        self._mean, self._square = torch.zeros_like(self._weights), torch.zeros_like(self._weights)
        self._steps = 0

    def look_up(self, ids: Tensor) -> Tensor:
        return self._weights[ids]

    def step(self, batch: Tensors) -> None:
        dense, ids, labels = batch
        (optimizer,) = self._optimizers
        optimizer.zero_grad(set_to_none=True)
        distinct, places = torch.unique(ids, return_inverse=True)
        rows = self._weights[distinct].requires_grad_()
        F.binary_cross_entropy_with_logits(self._logits(F.embedding(places, rows), dense), labels).backward()
        optimizer.step()
        self._push(distinct, rows.detach(), rows.grad)

    def _push(self, distinct: Tensor, rows: Tensor, gradient: Tensor) -> None:
        self._steps += 1
        mean = self._mean[distinct].mul_(0.9).add_(gradient, alpha=0.1)
        square = self._square[distinct].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        rate = LEARNING_RATE * math.sqrt(1 - 0.999**self._steps) / (1 - 0.9**self._steps)
        self._mean[distinct], self._square[distinct] = mean, square
        self._weights[distinct] = rows.addcdiv_(mean, square.sqrt().add_(1e-8), value=-rate)


def _draw_table() -> Tensor:
    return torch.empty(TABLE, DIM).uniform_(-0.05, 0.05)


def build(order: Order, seed: int) -> PlainTorch:
    kinds = {"dense": EmbeddingTorch, "sparse": EmbeddingTorch, "bag": BagTorch, "lazy": LazyTorch}
    return kinds[order.variant.removesuffix("_compiled")](order, seed)


if __name__ == "__main__":
    serve(build)
