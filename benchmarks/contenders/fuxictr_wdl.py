"""Wide&Deep from FuxiCTR's layers, trained by its own `train_step`. Variant: wdl.

Its package ships layers and a base model; the model itself is assembled here the way its model zoo does.
"""

from __future__ import annotations

import tempfile

import fuxictr
import numpy as np
import torch
import torch_net
from clicks import DENSE, DIM, LAYERS, LEARNING_RATE, SLOTS, TABLE, Rows
from fuxictr.features import FeatureMap
from fuxictr.pytorch.layers import FeatureEmbedding, MLP_Block
from fuxictr.pytorch.models import BaseModel
from numpy.typing import NDArray
from torch import Tensor, nn
from worker import Order, Stack, serve

DENSE_NAMES = [f"dense{k}" for k in range(DENSE)]
SLOT_NAMES = [f"slot{k}" for k in range(SLOTS)]


class WideDeep(BaseModel):
    def __init__(self, features: FeatureMap, folder: str) -> None:
        super().__init__(features, "wide_deep", gpu=-1, verbose=0, model_root=folder, metrics=["AUC"])
        self.embedding = FeatureEmbedding(features, DIM, required_feature_columns=SLOT_NAMES)
        self.wide = nn.Linear(DENSE, 1)
        self.deep = MLP_Block(
            input_dim=SLOTS * DIM + DENSE,
            output_dim=1,
            hidden_units=list(LAYERS),
            hidden_activations="ReLU",
            output_activation=None,
        )
        self.compile("adam", "binary_crossentropy", LEARNING_RATE)
        self.reset_parameters()
        self._max_gradient_norm = 10.0

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        columns = self.get_inputs(inputs)
        dense = torch.stack([columns[name] for name in DENSE_NAMES], 1).float()
        embeddings = self.embedding(columns, feature_type=["categorical"], flatten_emb=True)
        logits = self.wide(dense) + self.deep(torch.cat([embeddings, dense], 1))
        return {"y_pred": self.output_activation(logits)}


class FuxiCtrWdl(Stack):
    version = fuxictr.__version__

    def __init__(self, order: Order, seed: int) -> None:
        torch_net.set_up(seed)
        self._model = WideDeep(_describe_features(), tempfile.mkdtemp(prefix="fuxictr-"))

    def prepare(self, rows: Rows) -> dict[str, Tensor]:
        columns = dict(zip(DENSE_NAMES, torch.from_numpy(rows.dense.T.copy()), strict=True))
        columns |= zip(SLOT_NAMES, torch.from_numpy(rows.ids.T.copy()), strict=True)
        return columns | {"label": torch.from_numpy(rows.labels)}

    def step(self, batch: dict[str, Tensor]) -> None:
        self._model.train_step(batch)

    @torch.no_grad()
    def predict(self, rows: Rows) -> NDArray[np.float32]:
        return self._model(self.prepare(rows))["y_pred"].squeeze(1).numpy()


def _describe_features() -> FeatureMap:
    features = FeatureMap("clicks", tempfile.gettempdir())
    features.labels = ["label"]
    for name in DENSE_NAMES:
        features.features[name] = {"type": "numeric", "source": "", "embedding_dim": DIM}
    for name in SLOT_NAMES:
        shared = {} if name == SLOT_NAMES[0] else {"share_embedding": SLOT_NAMES[0]}
        features.features[name] = {
            "type": "categorical",
            "source": "",
            "vocab_size": TABLE,
            "embedding_dim": DIM,
        } | shared
    features.num_fields = DENSE + SLOTS
    features.total_features = TABLE
    features.default_emb_dim = DIM
    features.set_column_index()
    return features


if __name__ == "__main__":
    serve(FuxiCtrWdl)
