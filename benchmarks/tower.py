"""An MLP alone, trained natively and by torch, eager and compiled, in fp32 and bf16: samples per second.

One step is forward, BCE loss, backward to input and parameters, Adam. Towers: a plain one, and the zoo's (examples/zoo)
with batch norm and dropout. Native and torch run in separate processes, each with the environment that suits it; they
take turns, and the median round counts.
Usage: python benchmarks/tower.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import measure
from elasticctr.models.cpu import cpu_features, environment

KINDS = ("native", "eager", "compiled")
WORKERS = {"native": "native", "eager": "torch", "compiled": "torch"}
TOWERS: dict[str, tuple[int, list[int], float, bool]] = {  # input, hidden, dropout, batch norm
    "plain": (247, [512, 256, 128, 32], 0.0, False),
    "norm": (100, [400, 400, 400], 0.2, True),
}
CASES = (("plain", 4096), ("plain", 512), ("norm", 4096))


def make_step(tower: str, batch: int, precision: str, kind: str) -> Callable[[], None]:
    import torch

    from elasticctr.models.layers import MLP, set_native_towers, set_tower_precision
    from elasticctr.train.dense_optimizer import DenseAdam

    torch.manual_seed(0)
    is_native = kind == "native"
    set_native_towers(is_native)
    width, hidden, dropout, batch_norm = TOWERS[tower]
    model = MLP(width, hidden, dropout=dropout, batch_norm=batch_norm)
    optimizer = DenseAdam(model.parameters()) if is_native else torch.optim.Adam(model.parameters(), fused=True)
    forward = torch.compile(model) if kind == "compiled" else model
    x = torch.randn(batch, width, requires_grad=True)
    labels = (torch.rand(batch) < 0.25).float()
    loss_of = torch.nn.BCEWithLogitsLoss()

    def step() -> None:
        x.grad = None
        optimizer.zero_grad(set_to_none=True)
        if is_native:
            set_tower_precision("bf16" if precision == "bf16" else "fp32")
            logits = forward(x).squeeze(1)
        else:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
                logits = forward(x).squeeze(1)
        loss_of(logits.float(), labels).backward()
        optimizer.step()

    return step


def work() -> None:
    """Answers lines of JSON [kind, precision, tower, batch, seconds] with the samples per second it reached."""
    steps: dict[tuple[str, str, str, int], Callable[[], None]] = {}
    for line in sys.stdin:
        kind, precision, tower, batch, seconds = json.loads(line)
        key = (kind, precision, tower, batch)
        if key not in steps:
            steps[key] = make_step(tower, batch, precision, kind)
            for _ in range(5):
                steps[key]()
        step, count = steps[key], 0
        step()
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            step()
            count += 1
        print(count * batch / elapsed, flush=True)


def start_worker(name: str) -> subprocess.Popen[str]:
    settings = environment()
    if name == "torch":  # alone in its process, torch is faster with its own way of waiting
        settings.pop("OMP_WAIT_POLICY")
    return subprocess.Popen(
        [sys.executable, __file__, "--worker"],
        env={**settings, **os.environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(worker: subprocess.Popen[str], *question: object) -> float:
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write(json.dumps(question) + "\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return
    rounds, seconds = (3, 0.4) if options.quick else (7, 1.0)
    workers = {name: start_worker(name) for name in ("native", "torch")}
    results: dict[str, object] = {}
    for precision in ("fp32", "bf16"):
        for tower, batch in CASES:
            suffix = f"{precision}_{batch}" if tower == "plain" else f"{precision}_{batch}_{tower}"
            rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for _ in range(rounds):
                for kind in KINDS:
                    rates[kind].append(ask(workers[WORKERS[kind]], kind, precision, tower, batch, seconds))
            medians = {kind: statistics.median(rates[kind]) for kind in KINDS}
            ratio = medians["native"] / max(medians["eager"], medians["compiled"])
            shown = "  ".join(f"{kind} {value / 1e3:7.1f}k" for kind, value in medians.items())
            case = f"{tower:5s} {precision} batch {batch:4d}"
            print(f"{case}: {shown} samples/s   native / best torch {ratio:.2f}", flush=True)
            results |= {f"{kind}_{suffix}": round(value) for kind, value in medians.items()}
            results[f"vs_torch_{suffix}"] = round(ratio, 3)
    for worker in workers.values():
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()
    print(json.dumps({**results, "cpu": cpu_features(), **measure.stamp()}))


if __name__ == "__main__":
    main()
