"""DeepCTR-Torch's WDL, one shared table, no regularisation; the step is the body of its `fit` loop. Variant: wdl."""

from __future__ import annotations

import deepctr_torch
import numpy as np
import torch
import torch_net
from clicks import DENSE, DIM, LAYERS, SLOTS, TABLE, Rows
from deepctr_torch.inputs import DenseFeat, SparseFeat
from deepctr_torch.models import WDL
from numpy.typing import NDArray
from torch import Tensor
from worker import Order, Stack, serve


class DeepCtrWdl(Stack):
    version = deepctr_torch.__version__

    def __init__(self, order: Order, seed: int) -> None:
        torch_net.set_up(seed)
        dense = [DenseFeat(f"dense{k}", 1) for k in range(DENSE)]
        sparse = [SparseFeat(f"slot{k}", TABLE, embedding_dim=DIM, embedding_name="table") for k in range(SLOTS)]
        self._model = WDL(
            dense,
            sparse + dense,
            dnn_hidden_units=LAYERS,
            l2_reg_linear=0,
            l2_reg_embedding=0,
            l2_reg_dnn=0,
            seed=seed,
            device="cpu",
        )
        self._model.compile("adam", "binary_crossentropy")
        columns = {feature.name: k for k, feature in enumerate(dense + sparse)}
        self._order = [columns[name] for name in self._model.feature_index]

    def prepare(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """DeepCTR-Torch reads everything as one float32 matrix, which holds ids up to 2^24 exactly."""
        matrix = np.concatenate([rows.dense, rows.ids.astype(np.float32)], axis=1)[:, self._order]
        return torch.from_numpy(np.ascontiguousarray(matrix)), torch.from_numpy(rows.labels)

    def step(self, batch: tuple[Tensor, Tensor]) -> None:
        matrix, labels = batch
        model = self._model
        chances = model(matrix).squeeze()
        model.optim.zero_grad()
        loss = model.loss_func(chances, labels, reduction="sum")
        (loss + model.get_regularization_loss() + model.aux_loss).backward()
        model.optim.step()

    @torch.no_grad()
    def predict(self, rows: Rows) -> NDArray[np.float32]:
        return self._model(self.prepare(rows)[0]).squeeze(1).numpy()


if __name__ == "__main__":
    serve(DeepCtrWdl)
