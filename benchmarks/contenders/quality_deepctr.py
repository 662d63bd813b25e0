"""DeepCTR-Torch's models for benchmarks/quality_peers.py, trained by its own `fit` with its own early stopping.

What it lacks is added as callbacks: learning rates fall on a plateau, and the model returns to training mode after each
evaluation (its `fit` leaves it in evaluation mode from the second epoch on, without dropout and batch statistics). Its
loss is a sum over the batch and its penalty l2 * w², so the job's l2 becomes l2 * batch / 2. Where it differs from the
job: heads of autoint are dim / heads wide, fibinet has no batch norm and one set of bilinear weights.
"""

from __future__ import annotations

import functools
from typing import Any

import deepctr_torch
import torch
from deepctr_torch.callbacks import Callback, EarlyStopping
from deepctr_torch.inputs import SparseFeat
from deepctr_torch.models import DCN, WDL, AutoInt, DeepFM, FiBiNET, basemodel, xDeepFM
from quality_order import Laps, Order, answer, load, score
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset


def build(order: Order, sizes: dict[str, int]) -> Any:
    settings = order.model
    dim, hidden = settings.get("dim", 1), tuple(settings.get("hidden", ()))
    slots = [SparseFeat(name, size, embedding_dim=dim) for name, size in sizes.items()]
    l2 = order.l2 * order.batch_size / 2
    common = {"l2_reg_embedding": l2, "seed": order.seed, "dnn_hidden_units": hidden, "device": order.device}
    tower = {"dnn_dropout": settings.get("dropout", 0.0), "dnn_use_bn": settings.get("batch_norm", False)}
    linear = {"l2_reg_linear": l2}
    match settings["name"]:
        case "lr":
            return WDL(slots, [], **common, **linear)
        case "fm":
            return DeepFM(slots, slots, **common, **linear)
        case "dnn":
            return WDL([], slots, **common, **tower)
        case "wide_deep":
            return WDL(slots, slots, **common, **linear, **tower)
        case "deepfm":
            return DeepFM(slots, slots, **common, **linear, **tower)
        case "xdeepfm":
            cin = {"cin_layer_size": settings["cin"], "cin_split_half": settings.get("split_half", False)}
            return xDeepFM(slots, slots, cin_activation="linear", **cin, **common, **linear, **tower)
        case "dcn" | "dcnv2" as name:
            kind = {"cross_parameterization": "vector" if name == "dcn" else "matrix", "l2_reg_cross": 0.0}
            return DCN([], slots, settings["cross_layers"], l2_reg_linear=0.0, **kind, **common, **tower)
        case "autoint":
            return AutoInt([], slots, settings["attention_layers"], settings["heads"], **common, **tower)
        case "fibinet":
            return FiBiNET(slots, slots, dnn_dropout=settings.get("dropout", 0.0), **common, **linear)
        case name:
            raise SystemExit(f"DeepCTR-Torch has no {name}")


class Plateau(Callback):
    def __init__(self, min_delta: float, factor: float, floor: float) -> None:
        super().__init__()
        self._min_delta, self._factor, self._floor = min_delta, factor, floor
        self._best = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.train()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs["val_auc"] > self._best + self._min_delta:
            self._best = logs["val_auc"]
            return
        for group in self.model.optim.param_groups:
            group["lr"] = max(group["lr"] * self._factor, self._floor)


class Clock(Callback):
    def __init__(self, laps: Laps) -> None:
        super().__init__()
        self._laps = laps

    def on_train_begin(self, logs: Any = None) -> None:
        self._laps.start()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._laps.end_epoch()


def gather_at_once() -> None:
    def gather(dataset: TensorDataset, rows: list[int]) -> list[Tensor]:
        return [tensor[rows] for tensor in dataset.tensors]

    TensorDataset.__getitems__ = gather  # type: ignore[attr-defined]
    basemodel.DataLoader = functools.partial(DataLoader, collate_fn=lambda batch: batch)


def train(order: Order, laps: Laps) -> dict[str, Any]:
    torch.set_num_threads(1)
    rows, held_out, sizes = load(order)
    model = build(order, sizes)
    model.compile("adam", "binary_crossentropy", metrics=["auc"])
    model.register_forward_pre_hook(lambda *_: laps.begin_step())
    model.optim.register_step_post_hook(lambda *_: laps.end_step())
    if order.device == "cuda":
        gather_at_once()
    stop = order.job["train"]["early_stopping"]
    plateau = order.job["train"]["plateau"]
    rate = model.optim.param_groups[0]["lr"]
    lower = Plateau(plateau["min_delta"], plateau["factor"], rate * plateau["min_scale"])
    stopping = EarlyStopping(
        "val_auc", stop["min_delta"], patience=stop["patience"], mode="max", restore_best_weights=True
    )
    model.fit(
        rows.ids,
        rows.labels,
        batch_size=order.batch_size,
        epochs=order.epochs,
        verbose=0,
        validation_data=(held_out.ids, held_out.labels),
        callbacks=[lower, stopping, Clock(laps)],
    )
    model.load_state_dict(stopping.best_weights)
    chances = model.predict(held_out.ids, order.batch_size).squeeze(1)
    return {**score(held_out.labels, chances), "version": deepctr_torch.__version__}


if __name__ == "__main__":
    answer(train)
