"""Wide&Deep with TorchRec on CPU.

fused   FusedEmbeddingBagCollection: fbgemm's table with the optimizer inside backward
tbe     the same fbgemm table without TorchRec's jagged tensors around it
Both use row-wise Adagrad, since fbgemm has no Adam on CPU, and 12 columns for 9: its width must be a multiple of 4.
"""

from __future__ import annotations

import numpy as np
import torch
import torch_net
import torchrec
from clicks import LEARNING_RATE, SLOTS, TABLE, Rows
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from worker import Order, Stack, serve

WIDTH = 12
TABLE_RATE = 1e-2  # Adagrad's usual one


class TorchRecBags(Stack):
    version = torchrec.__version__

    def __init__(self, order: Order, seed: int) -> None:
        torch_net.set_up(seed)
        self._precision = order.precision
        self._net = torch_net.WideDeep(WIDTH)
        self._optimizer = torch.optim.Adam(self._net.parameters(), lr=LEARNING_RATE, fused=True)
        make_table = _make_fused if order.variant == "fused" else _make_tbe
        self._look_up = make_table(order.batch_size)

    def prepare(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        slot_major = np.ascontiguousarray(rows.ids.T).reshape(-1)
        return torch.from_numpy(rows.dense), torch.from_numpy(slot_major), torch.from_numpy(rows.labels)

    def step(self, batch: tuple[Tensor, Tensor, Tensor]) -> None:
        dense, ids, labels = batch
        self._optimizer.zero_grad(set_to_none=True)
        F.binary_cross_entropy_with_logits(self._logits(dense, ids), labels).backward()
        self._optimizer.step()

    @torch.no_grad()
    def predict(self, rows: Rows) -> NDArray[np.float32]:
        dense, ids, _ = self.prepare(rows)
        return self._logits(dense, ids).sigmoid().numpy()

    def _logits(self, dense: Tensor, ids: Tensor) -> Tensor:
        embeddings = self._look_up(ids)
        with torch_net.autocast(self._precision):
            logits = self._net(embeddings, dense)
        return logits.float()


def _make_fused(batch_size: int):
    from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
    from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

    names = [f"slot{slot}" for slot in range(SLOTS)]
    config = torchrec.EmbeddingBagConfig(name="table", embedding_dim=WIDTH, num_embeddings=TABLE, feature_names=names)
    table = FusedEmbeddingBagCollection(
        [config], optimizer_type=RowWiseAdagrad, optimizer_kwargs={"lr": TABLE_RATE}, device=torch.device("cpu")
    )
    lengths = torch.ones(SLOTS * batch_size, dtype=torch.int64)

    def look_up(ids: Tensor) -> Tensor:
        jagged = torchrec.KeyedJaggedTensor(keys=names, values=ids, lengths=lengths[: len(ids)])
        return table(jagged).values()

    return look_up


def _make_tbe(batch_size: int):
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    table = SplitTableBatchedEmbeddingBagsCodegen(
        [(TABLE, WIDTH, EmbeddingLocation.HOST, ComputeDevice.CPU)],
        feature_table_map=[0] * SLOTS,
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=TABLE_RATE,
        eps=1e-8,
        pooling_mode=PoolingMode.SUM,
    )
    table.init_embedding_weights_uniform(-0.05, 0.05)
    offsets = torch.arange(SLOTS * batch_size + 1)
    return lambda ids: table(ids, offsets[: len(ids) + 1])


if __name__ == "__main__":
    serve(TorchRecBags)
