"""An MLP alone, trained natively and by torch, eager and compiled, in fp32 and bf16: samples per second.

One step is forward, BCE loss, backward to input and parameters, Adam. All contestants run in turn, round after round,
and the median round counts. Usage: python benchmarks/tower.py [--quick]
"""

from __future__ import annotations

# ruff: noqa: E402
from elasticctr.models.cpu import cpu_features, prepare_torch

prepare_torch()  # before torch is imported: it reads its environment then

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from elasticctr.models.layers import MLP, set_native_towers, set_tower_precision
from elasticctr.train.dense_optimizer import DenseAdam

WIDTHS = (247, 512, 256, 128, 32)


def make_step(batch: int, precision: str, kind: str) -> Callable[[], None]:
    torch.manual_seed(0)
    is_native = kind == "native"
    model = MLP(WIDTHS[0], WIDTHS[1:])
    optimizer = DenseAdam(model.parameters()) if is_native else torch.optim.Adam(model.parameters(), fused=True)
    forward = torch.compile(model) if kind == "compiled" else model
    x = torch.randn(batch, WIDTHS[0], requires_grad=True)
    labels = (torch.rand(batch) < 0.25).float()
    loss_of = nn.BCEWithLogitsLoss()

    def step() -> None:
        set_native_towers(is_native)
        set_tower_precision("bf16" if is_native and precision == "bf16" else "fp32")
        x.grad = None
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16" and not is_native):
            logits = forward(x).squeeze(1)
        loss_of(logits.float(), labels).backward()
        optimizer.step()

    return step


def measure(step: Callable[[], None], seconds: float) -> float:
    """Steps per second."""
    step()
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds:
        step()
        steps += 1
    return steps / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    quick = parser.parse_args().quick
    rounds, seconds = (3, 0.4) if quick else (7, 1.0)
    # While torch computes, it has all cores; while the native pool does, torch has nothing to do in parallel.
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    results: dict[str, float] = {}
    for precision in ("fp32", "bf16"):
        for batch in (4096, 512):
            kinds = ("native", "eager", "compiled")
            steps = {kind: make_step(batch, precision, kind) for kind in kinds}
            rates: dict[str, list[float]] = {kind: [] for kind in kinds}
            for kind in kinds:
                measure(steps[kind], 0.2)
            for _ in range(rounds):
                for kind in kinds:
                    rates[kind].append(measure(steps[kind], seconds) * batch)
            medians = {kind: statistics.median(rates[kind]) for kind in kinds}
            ratio = medians["native"] / max(medians["eager"], medians["compiled"])
            shown = "  ".join(f"{kind} {value / 1e3:7.1f}k" for kind, value in medians.items())
            print(f"{precision} batch {batch:4d}: {shown} samples/s   native / best torch {ratio:.2f}", flush=True)
            for kind, value in medians.items():
                results[f"{kind}_{precision}_{batch}"] = round(value)
            results[f"vs_torch_{precision}_{batch}"] = round(ratio, 3)
    print(json.dumps({**results, "torch": torch.__version__, "cpu": cpu_features()}))


if __name__ == "__main__":
    main()
