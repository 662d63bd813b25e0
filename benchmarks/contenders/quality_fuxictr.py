"""FuxiCTR for benchmarks/quality_peers.py: models from its layers, read by its loader and trained by its own `fit`,
which has the whole recipe: early stopping, learning rates down on a plateau, the best state kept.

Its loader runs in the process itself, so that a run has only one thread.
"""

from __future__ import annotations

import logging
from typing import Any

import fuxictr
import numpy as np
import torch
from fuxictr.features import FeatureMap
from fuxictr.pytorch.dataloaders.npz_dataloader import NpzDataLoader
from quality_fuxictr_models import MODELS, ZooModel
from quality_order import Laps, Order, Split, answer, load, score
from torch import Tensor


def train(order: Order, laps: Laps) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(order.seed)
    logging.disable(logging.INFO)
    rows, held_out, sizes = load(order)
    features = _describe(sizes, order)
    plateau, stop = order.job["train"]["plateau"], order.job["train"]["early_stopping"]
    if (plateau["factor"], plateau["patience"], stop["min_delta"]) != (0.1, 1, 1e-6):
        raise SystemExit("FuxiCTR's plateau is fixed: factor 0.1, patience 1, min_delta 1e-6")

    class Timed(MODELS[order.model["name"]]):  # type: ignore[misc]
        def train_step(self, batch: dict[str, Tensor]) -> Tensor:
            laps.begin_step()
            loss: Tensor = super().train_step(batch)
            laps.end_step()
            return loss

        def train_epoch(self, batches: Any) -> None:
            super().train_epoch(batches)
            laps.end_epoch()

    gpu = 0 if order.device == "cuda" else -1
    model: ZooModel = Timed(features, order.model, order.l2, stop["patience"], str(order.folder), gpu)
    model.compile("adam", "binary_crossentropy", float(order.job["dense"]["learning_rate"]))
    model.reset_parameters()
    model.model_to_device()
    train_batches = NpzDataLoader(
        features, _save(order, "train", rows), batch_size=order.batch_size, shuffle=True, num_workers=0
    )
    valid_batches = NpzDataLoader(features, _save(order, "valid", held_out), batch_size=order.batch_size, num_workers=0)
    if order.device == "cuda":
        for loader in (train_batches, valid_batches):
            _gather_at_once(loader)
    laps.start()
    model.fit(train_batches, epochs=order.epochs, validation_data=valid_batches)
    return {**score(held_out.labels, model.predict(valid_batches)), "version": fuxictr.__version__}


def _gather_at_once(loader: NpzDataLoader) -> None:
    """As its collate_fn does, less the list of rows."""
    columns = list(loader.dataset.feature_map.features) + loader.dataset.feature_map.labels
    type(loader.dataset).__getitems__ = lambda self, rows: torch.from_numpy(self.darray[rows])
    loader.collate_fn = lambda batch: {column: batch[:, k] for k, column in enumerate(columns)}


def _save(order: Order, name: str, rows: Split) -> str:
    path = order.folder / f"{name}.npz"
    np.savez(path, **rows.ids, label=rows.labels.astype(np.int64))
    return str(path)


def _describe(sizes: dict[str, int], order: Order) -> FeatureMap:
    features = FeatureMap("", str(order.folder))  # its folder is that of the checkpoints, under the run's own
    features.labels = ["label"]
    dim = order.model.get("dim", 1)
    for name, size in sizes.items():
        features.features[name] = {"type": "categorical", "source": "", "vocab_size": size, "embedding_dim": dim}
    features.num_fields = len(sizes)
    features.total_features = sum(sizes.values())
    features.default_emb_dim = dim
    features.set_column_index()
    return features


if __name__ == "__main__":
    answer(train)
