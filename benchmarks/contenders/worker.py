"""The worker's side of the line protocol: a long-lived process that trains on command.

`python WORKER.py VARIANT PRECISION BATCH FOLDER` builds its model, takes a few steps and prints `READY {…}`. Then, one
JSON line per command: `run SECONDS` trains for that long, `auc SEED` trains a fresh model for one epoch and scores the
held-out rows, `quit` ends. Errors end the process; the last line on standard error says why. Needs numpy only.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clicks
import metrics
import numpy as np
from clicks import Rows
from numpy.typing import NDArray

START_STEPS = 4  # compile, allocate, settle
THREADS = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Order:
    """The command line."""

    variant: str
    precision: str
    batch_size: int
    folder: Path


class Stack(ABC):
    """A model in training. `prepare` is not timed, so that frameworks are measured and not numpy."""

    warm_s = 0.5  # untimed, at the start of each window
    version = ""

    def prepare(self, rows: Rows) -> Any:
        return rows

    @abstractmethod
    def step(self, batch: Any) -> None: ...

    @abstractmethod
    def predict(self, rows: Rows) -> NDArray[np.float32]:
        """Click probabilities."""

    def stream(self, rows: Rows, batch_size: int) -> Iterator[Any]:
        """Training batches without end."""
        return itertools.cycle([self.prepare(part) for part in rows.batches(batch_size)])

    def read_epoch(self, rows: Rows, batch_size: int) -> Iterator[Any]:
        """Every training batch once."""
        return map(self.prepare, rows.batches(batch_size))


def serve(build: Callable[[Order, int], Stack]) -> None:
    """`build(order, seed)` makes a model. Returns after `quit` or when standard input ends."""
    variant, precision, batch_size, folder = sys.argv[1:]
    order = Order(variant, precision, int(batch_size), Path(folder))
    # Libraries print to standard output as they like; only the protocol may reach the orchestrator.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    train, test = clicks.load(order.folder)
    stack = build(order, 0)
    batches = stack.stream(train, order.batch_size)
    for _ in range(START_STEPS):
        stack.step(next(batches))
    print("READY", json.dumps({"version": stack.version}), file=answers)
    for line in sys.stdin:
        match line.split():
            case ["run", seconds]:
                print(json.dumps(_run(stack, batches, order.batch_size, float(seconds))), file=answers)
            case ["auc", seed]:
                print(json.dumps(_score(build(order, int(seed)), order, train, test)), file=answers)
            case ["quit"]:
                break
            case _:
                raise SystemExit(f"unknown command {line!r}")


def _run(stack: Stack, batches: Iterator[Any], batch_size: int, seconds: float) -> dict[str, float]:
    warm = time.perf_counter()
    while time.perf_counter() - warm < min(stack.warm_s, seconds):
        stack.step(next(batches))
    machine, own, began = _machine_cpu_s(), _own_cpu_s(), time.perf_counter()
    steps = 0
    while (elapsed := time.perf_counter() - began) < seconds or steps < 3:
        stack.step(next(batches))
        steps += 1
    elapsed = time.perf_counter() - began
    own_cores = (_own_cpu_s() - own) / elapsed
    return {
        "samples_per_s": steps * batch_size / elapsed,
        "steps": steps,
        "ms_per_step": 1e3 * elapsed / steps,
        "own_cores": own_cores,
        "other_cores": max(0.0, (_machine_cpu_s() - machine) / elapsed - own_cores),
        "rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def _score(stack: Stack, order: Order, train: Rows, test: Rows) -> dict[str, float]:
    began = time.perf_counter()
    for batch in stack.read_epoch(train, order.batch_size):
        stack.step(batch)
    epoch_s = time.perf_counter() - began
    parts = [stack.predict(part) for part in test.batches(min(order.batch_size, len(test)))]
    chances = np.concatenate(parts).astype(np.float64)
    labels = test.labels[: len(chances)]
    return {"auc": metrics.auc(labels, chances), "logloss": metrics.logloss(labels, chances), "epoch_s": epoch_s}


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _machine_cpu_s() -> float:
    """CPU time of all processes since boot, including time taken by the host (steal)."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
