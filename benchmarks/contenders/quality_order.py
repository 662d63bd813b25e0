"""The input and output of one run of benchmarks/quality_peers.py, the same for every stack. Needs numpy and pandas.

`python quality_STACK.py ORDER.json RESULT.json` trains one model on one seed with one thread: batches, learning rate,
plateau, early stopping, sizes and device are those of the job in the order. An epoch is everything between two
evaluations, the evaluation included: reading, steps, keeping the best state. Its CPU time is that of the whole process.
On a GPU only AUC is measured: peers' batches, drawn in their loader's order, are then gathered at once and not sample
by sample.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import metrics
import numpy as np
from numpy.typing import NDArray

Ids = dict[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Order:
    job: dict[str, Any]  # as in examples/zoo, the schema within it
    folder: Path  # of this run only

    @property
    def model(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.job["model"]
        return settings

    @property
    def epochs(self) -> int:
        return int(self.job["train"]["epochs"])

    @property
    def batch_size(self) -> int:
        return int(self.job["train"]["batch_size"])

    @property
    def seed(self) -> int:
        return int(self.job["train"]["seed"])

    @property
    def device(self) -> str:
        return str(self.job["train"]["device"])

    @property
    def l2(self) -> float:
        """The factor of w in the gradient of a mean loss."""
        sparse = self.job["sparse"]
        return float(sparse.get("optimizer", sparse.get("linear_optimizer", {})).get("l2", 0.0))


class Laps:
    """CPU and wall seconds of each epoch, and the CPU seconds of its steps where they can be separated."""

    def __init__(self) -> None:
        self._wall: list[float] = []
        self._cpu: list[float] = []
        self._steps: list[float] = []
        self.start()

    def start(self) -> None:
        self._began = (time.perf_counter(), time.process_time())
        self._in_steps = 0.0

    def begin_step(self) -> None:
        self._step_began = time.process_time()

    def end_step(self) -> None:
        self._in_steps += time.process_time() - self._step_began

    def end_epoch(self) -> None:
        self._wall.append(time.perf_counter() - self._began[0])
        self._cpu.append(time.process_time() - self._began[1])
        self._steps.append(self._in_steps)
        self.start()

    def figures(self) -> dict[str, float]:
        return {
            "epochs": len(self._wall),
            "epoch_s": statistics.median(self._wall),
            "epoch_cpu_s": statistics.median(self._cpu),
            "steps_cpu_s": statistics.median(self._steps),
        }


@dataclass(frozen=True)
class Split:
    """Ids counted from 1 in the order of the training rows' values, 0 for unknown ones."""

    ids: Ids
    labels: NDArray[np.float32]


def load(order: Order) -> tuple[Split, Split, dict[str, int]]:
    """Training rows, validation rows, and how many ids each slot has."""
    import pandas as pd

    slots = [slot["name"] for slot in order.job["schema"]["slots"]]
    label = order.job["schema"]["label"]
    train = pd.read_csv(order.job["data"]["train"]["path"])
    valid = pd.read_csv(order.job["data"]["valid"]["path"])
    known = {slot: np.unique(train[slot].to_numpy()) for slot in slots}

    def encode(rows: Any) -> Split:
        ids = {}
        for slot, values in known.items():
            place = np.minimum(np.searchsorted(values, rows[slot].to_numpy()), len(values) - 1)
            ids[slot] = np.where(values[place] == rows[slot].to_numpy(), place + 1, 0)
        return Split(ids, rows[label].to_numpy(np.float32))

    return encode(train), encode(valid), {slot: len(values) + 1 for slot, values in known.items()}


def score(labels: NDArray[np.float32], chances: NDArray[np.float64]) -> dict[str, float]:
    return {"auc": metrics.auc(labels, chances), "logloss": metrics.logloss(labels, chances)}


def answer(train: Callable[[Order, Laps], dict[str, Any]]) -> None:
    """`train(order, laps)` returns auc, logloss and version."""
    order_path, result_path = map(Path, sys.argv[1:])
    order = Order(json.loads(order_path.read_text()), order_path.parent)
    laps = Laps()
    result = train(order, laps)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result_path.write_text(json.dumps({**result, **laps.figures(), "peak_mib": peak_mib}))
