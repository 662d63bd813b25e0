"""Sparse table: pulls and pushes against NumPy moving the same rows (a limit) and torch EmbeddingBag with SparseAdam.

The work is one training batch of 4096 samples x 26 slots, dim 9, Adam, for tables of growing size and uniform or
zipf-like ids. Ours starts from feasigns; NumPy and torch get row numbers, and NumPy's push even gets each row once with
its gradients summed. Our `pull` includes `find`. Figures are medians of interleaved rounds.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import measure
from elasticctr import _native
from elasticctr.table import SegmentSettings, SlotTarget, Table, TableSettings

SAMPLES, SLOTS, DIM = 4096, 26, 9
BATCHES = 8  # different batches in turn, so that rows are not always in cache
RATE, BETA1, BETA2, EPSILON = 0.001, 0.9, 0.999, 1e-8

Work = Callable[[], float]


def draw_rows(kind: str, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Row numbers of one batch, slot-major. zipf: P(rank) ~ 1/rank, ranks scattered over the table."""
    count = SAMPLES * SLOTS
    if kind == "uniform":
        return rng.integers(0, size, count)
    ranks = np.minimum(size ** rng.random(count), size - 1).astype(np.int64)
    return ranks * 1_000_003 % size


def to_feasigns(rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    return rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def make_table(size: int) -> Table:
    table = Table(TableSettings(segments=(SegmentSettings(name="embedding", dim=DIM),)))
    layout = table.layout([SlotTarget(0, {"embedding": 0})])
    for start in range(0, size, 1_000_000):
        values = to_feasigns(np.arange(start, min(start + 1_000_000, size)))
        table.find(layout.lookup(values, np.array([0, len(values)], np.int32), 1), insert=True)
    return table


class Ours:
    def __init__(self, table: Table, batches: list[NDArray[np.int64]], gradient: NDArray[np.float32]) -> None:
        self.table = table
        self.layout = table.layout([SlotTarget(s, {"embedding": DIM * s}) for s in range(SLOTS)])
        offsets = np.arange(SAMPLES * SLOTS + 1, dtype=np.int32)
        self.lookups = [self.layout.lookup(to_feasigns(rows), offsets, SAMPLES) for rows in batches]
        for lookup in self.lookups:
            table.find(lookup)
        self.flat = np.zeros((SAMPLES, SLOTS * DIM), np.float32)
        self.gradient = gradient
        self.clicks = np.zeros(SAMPLES, np.float32)

    def contestants(self) -> dict[str, Work]:
        find, pull, push = (itertools.cycle(self.lookups) for _ in range(3))
        return {
            "find": lambda: measure.seconds(lambda: self.table.find(next(find), insert=True)),
            "pull": lambda: measure.seconds(lambda: self.table.pull(next(pull), self.layout, [self.flat])),
            "push": lambda: measure.seconds(
                lambda: self.table.push(next(push), self.layout, [self.gradient], clicks=self.clicks)
            ),
        }


class Numpy:
    """The same rows moved by NumPy, whose indexing uses one thread."""

    def __init__(self, size: int, batches: list[NDArray[np.int64]]) -> None:
        self.weights, self.m, self.v = (np.zeros((size, DIM), np.float32) for _ in range(3))
        self.weights += np.float32(0.01)
        self.batches = batches
        self.unique = [np.unique(rows) for rows in batches]
        self.out = np.zeros((SAMPLES * SLOTS, DIM), np.float32)
        self.gradient = np.random.default_rng(0).normal(size=self.out.shape).astype(np.float32)

    def push(self, rows: NDArray[np.int64]) -> None:
        g = self.gradient[: len(rows)]
        m, v = self.m[rows], self.v[rows]
        m += np.float32(1 - BETA1) * (g - m)
        v += np.float32(1 - BETA2) * (g * g - v)
        self.m[rows], self.v[rows] = m, v
        self.weights[rows] -= np.float32(RATE) * m / (np.sqrt(v) + np.float32(EPSILON))

    def contestants(self) -> dict[str, Work]:
        pull, push = itertools.cycle(self.batches), itertools.cycle(self.unique)
        return {
            "numpy pull": lambda: measure.seconds(lambda: np.take(self.weights, next(pull), axis=0, out=self.out)),
            "numpy push": lambda: measure.seconds(lambda: self.push(next(push))),
        }


def torch_contestants(size: int, batches: list[NDArray[np.int64]], gradient: NDArray[np.float32]) -> dict[str, Work]:
    import torch

    bag = torch.nn.EmbeddingBag(size, DIM, mode="sum", sparse=True)
    optimizer = torch.optim.SparseAdam(list(bag.parameters()), lr=RATE)
    # Sample-major, so that the output is the model's input without a transpose.
    inputs = itertools.cycle(
        [torch.from_numpy(rows.reshape(SLOTS, SAMPLES).T.reshape(-1, 1).copy()) for rows in batches]
    )
    upstream = torch.from_numpy(gradient)
    pooled = bag(next(inputs))

    def pull() -> None:
        nonlocal pooled
        pooled = bag(next(inputs)).view(SAMPLES, SLOTS * DIM)

    def push() -> None:
        optimizer.zero_grad(set_to_none=True)
        pooled.backward(upstream)
        optimizer.step()

    return {"torch pull": lambda: measure.seconds(pull), "torch push": lambda: measure.seconds(push)}


def available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024


def run_size(size: int, rounds: int) -> tuple[dict[str, dict[str, float]], tuple[float, float]]:
    """Median seconds by kind of ids, and bytes per row above weights and state without and with counters."""
    rng = np.random.default_rng(size)
    table = make_table(size)
    stats = table.stats()
    overhead = stats.row_bytes + stats.index_bytes - stats.payload_bytes
    gradient = rng.normal(size=(SAMPLES, SLOTS * DIM)).astype(np.float32)
    results = {}
    for kind in ("uniform", "zipf"):
        batches = [draw_rows(kind, size, rng) for _ in range(BATCHES)]
        contestants = Ours(table, batches, gradient).contestants()
        contestants |= Numpy(size, batches).contestants()
        if available_bytes() > size * DIM * 4 * 3 * 2:  # twice: NumPy's zeros take theirs later
            contestants |= torch_contestants(size, batches, gradient)
        else:
            print(f"{size:>11,} rows {kind}: torch skipped, its weights and moments do not fit in the available memory")
        results[kind] = measure.interleave(contestants, rounds)
        del contestants
        gc.collect()
    return results, ((overhead - stats.counter_bytes) / size, overhead / size)


def show(size: int, kind: str, t: dict[str, float]) -> None:
    count = SAMPLES * SLOTS
    ours_pull = t["find"] + t["pull"]
    line = f"{size:>11,} rows {kind:>7}: pull {count / ours_pull / 1e6:6.1f} M/s (find {t['find'] * 1e3:.2f} ms, "
    line += f"pull {t['pull'] * 1e3:.2f} ms), numpy {count / t['numpy pull'] / 1e6:6.1f}"
    if "torch pull" in t:
        line += f", torch {count / t['torch pull'] / 1e6:6.1f}"
    line += (
        f" | push {count / t['push'] / 1e6:6.1f} M/s ({t['push'] * 1e3:.2f} ms), numpy {t['numpy push'] * 1e3:.2f} ms"
    )
    if "torch push" in t:
        line += f", torch {t['torch push'] * 1e3:.2f} ms"
    print(line, flush=True)


def main() -> None:
    arguments = measure.parse_arguments("Sparse table against NumPy and torch")
    sizes = [1_000_000] if arguments.quick else [1_000_000, 10_000_000, 50_000_000]
    rounds = 24 if arguments.quick else 48
    print(f"{SAMPLES} samples x {SLOTS} slots, dim {DIM}, Adam; {_native.threads()} threads; M/s are values")
    result: dict[str, float] = {}
    pulls, pushes, overheads = [], [], []
    for size in sizes:
        times, (overhead, with_counters) = run_size(size, rounds)
        overheads.append(overhead)
        for kind, t in times.items():
            show(size, kind, t)
            name = f"{kind}_{size // 1_000_000}m"
            result[f"pull_vs_numpy_{name}"] = t["numpy pull"] / (t["find"] + t["pull"])
            result[f"pull_found_vs_numpy_{name}"] = t["numpy pull"] / t["pull"]
            result[f"push_vs_numpy_{name}"] = t["numpy push"] / t["push"]
            if "torch pull" in t:
                result[f"pull_vs_torch_{name}"] = t["torch pull"] / (t["find"] + t["pull"])
                result[f"push_vs_torch_{name}"] = t["torch push"] / t["push"]
                result[f"step_vs_torch_{name}"] = (t["torch pull"] + t["torch push"]) / (
                    t["find"] + t["pull"] + t["push"]
                )
            pulls.append(result[f"pull_vs_numpy_{name}"])
            pushes.append(result[f"push_vs_numpy_{name}"])
            result[f"step_ms_{name}"] = (t["find"] + t["pull"] + t["push"]) * 1e3
        print(
            f"{size:>11,} rows: {overhead:.1f} bytes per row above weights and state, {with_counters:.1f} with counters"
        )
    for kind in ("uniform", "zipf"):
        growth = (
            result[f"step_ms_{kind}_{sizes[-1] // 1_000_000}m"] / result[f"step_ms_{kind}_{sizes[0] // 1_000_000}m"]
        )
        print(f"cost at {sizes[-1]:,} rows / at {sizes[0]:,} rows, {kind} ids: {growth:.2f}")
    measure.print_result(
        {
            "pull_vs_numpy": min(pulls),
            "push_vs_numpy": min(pushes),
            "overhead_bytes_per_row": max(overheads),
            "overhead_bytes_per_row_with_counters": max(overheads) + 12,
            **result,
        }
    )


if __name__ == "__main__":
    main()
