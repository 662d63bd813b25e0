"""Wide&Deep in PaddlePaddle's dynamic graph: one lookup for all slots, sparse gradients, lazy Adam. Variant: fused.

Float32 only: its autocast warns that it does nothing on a CPU.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import paddle
from clicks import DENSE, DIM, LAYERS, LEARNING_RATE, SLOTS, TABLE, Rows
from numpy.typing import NDArray
from paddle import nn
from paddle.nn import functional as F
from worker import Order, Stack, serve


class WideDeep(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        uniform = paddle.ParamAttr(initializer=nn.initializer.Uniform(-0.05, 0.05))
        self.table = nn.Embedding(TABLE, DIM, sparse=True, weight_attr=uniform)
        self.wide = nn.Linear(DENSE, 1)
        widths = [SLOTS * DIM + DENSE, *LAYERS, 1]
        layers: list[nn.Layer] = []
        for narrow, wide in pairwise(widths):
            normal = paddle.ParamAttr(initializer=nn.initializer.Normal(std=1 / math.sqrt(narrow)))
            layers += [nn.Linear(narrow, wide, weight_attr=normal), nn.ReLU()]
        self.deep = nn.Sequential(*layers[:-1])

    def forward(self, ids: paddle.Tensor, dense: paddle.Tensor) -> paddle.Tensor:
        embeddings = paddle.reshape(self.table(ids), [-1, SLOTS * DIM])
        return self.deep(paddle.concat([embeddings, dense], axis=1)) + self.wide(dense)


class PaddleDygraph(Stack):
    version = paddle.__version__

    def __init__(self, order: Order, seed: int) -> None:
        paddle.set_device("cpu")
        paddle.seed(seed)
        self._model = WideDeep()
        self._optimizer = paddle.optimizer.Adam(LEARNING_RATE, parameters=self._model.parameters(), lazy_mode=True)

    def prepare(self, rows: Rows) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        return paddle.to_tensor(rows.ids), paddle.to_tensor(rows.dense), paddle.to_tensor(rows.labels[:, None])

    def step(self, batch: tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]) -> None:
        ids, dense, labels = batch
        F.binary_cross_entropy_with_logits(self._model(ids, dense), labels).backward()
        self._optimizer.step()
        self._optimizer.clear_grad()

    @paddle.no_grad()
    def predict(self, rows: Rows) -> NDArray[np.float32]:
        ids, dense, _ = self.prepare(rows)
        return F.sigmoid(self._model(ids, dense)).numpy()[:, 0]


if __name__ == "__main__":
    serve(PaddleDygraph)
