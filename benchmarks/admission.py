"""The cost and value of rare feasigns: memory and AUC by admission threshold, optimizer state and encoding.

Trains on a synthetic Criteo-shaped log with tens of millions of different ids, most of which occur once: one epoch of
DeepFM for each threshold (a row at the 1st, 2nd, 5th, 10th occurrence) and each size of optimizer state. The model with
every id is scored again from its rows as published in fp32, fp16 and int8. Prints tables, draws plots/admission.png and
ends with one line of JSON. Weights are fp32 in training. Takes about 7 minutes, 4 GB of memory and 3 GB of disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from measure import ROOT, WORK, parse_arguments, stamp

THRESHOLDS = (1, 2, 5, 10)
# Optimizer state: two floats per weight, one per row, none. Each with a rate that suits this log.
OPTIMIZERS = {"adam": 0.0003, "rowwise_adagrad": 0.01, "sgd": 1.0}
DIM = 8
PLOT = ROOT / "benchmarks" / "plots" / "admission.png"


@dataclass(frozen=True)
class Size:
    rows: int  # for training; a tenth more for validation
    cardinality: int  # of each of 26 slots
    zipf: float = 0.9


FULL, QUICK = Size(2_500_000, 5_000_000), Size(100_000, 200_000)


def make_log(size: Size) -> tuple[Path, dict[str, Any]]:
    """Eleven files, the last one for validation; kept between runs."""
    folder = WORK / f"admission-{size.rows}-{size.cardinality}-{size.zipf}"
    if not (folder / "truth.json").exists():
        print(f"making {size.rows * 11 // 10:,} samples under {folder.relative_to(ROOT)} …", flush=True)
        options = ["--rows", str(size.rows * 11 // 10), "--files", "11", "--cardinality", str(size.cardinality)]
        command = [sys.executable, "-m", "elasticctr", "data", "synth", str(folder), *options]
        command += ["--zipf", str(size.zipf), "--seed", "7", "--overwrite", "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder, json.loads((folder / "truth.json").read_text())


def train(folder: Path, count: int, optimizer: str, *, is_encoded: bool) -> dict[str, Any]:
    from elasticctr.config import load_yaml

    job = {
        "schema": load_yaml(folder / "schema.yaml"),
        "data": {
            "train": [str(folder / f"part-{i:05d}.txt") for i in range(10)],
            "valid": str(folder / "part-00010.txt"),
        },
        "model": {"name": "deepfm", "dim": DIM, "hidden": [64, 32]},
        "sparse": {
            "optimizer": {"name": optimizer, "learning_rate": OPTIMIZERS[optimizer]},
            "admission": {"count": count},
        },
        "train": {"batch_size": 2048},
    }
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("admission_run.py"))],
        input=json.dumps({"job": job, "is_encoded": is_encoded}),
        capture_output=True,
        text=True,
    )
    if answer.returncode != 0:
        raise SystemExit(f"the run with admission {count} and {optimizer} failed:\n{answer.stderr}")
    result: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    print(
        f"{optimizer:>16} {count:>6} {result['rows']:>12,} {result['table_bytes'] / 2**20:>12,.0f} "
        f"{result['peak_bytes'] / 2**20:>10,.0f} {result['auc']:>9.5f} {result['logloss']:>9.5f} "
        f"{result['samples_per_s']:>11,.0f}",
        flush=True,
    )
    return result


def draw(by_count: dict[int, dict[str, Any]], by_optimizer: dict[str, dict[str, Any]], best: float) -> None:
    figure = Figure(figsize=(10.5, 3.6), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    counts, ids = [str(c) for c in by_count], by_count[1]["rows"]
    left.bar(counts, [r["table_bytes"] / 2**30 for r in by_count.values()], color="#9db9e8")
    left.set(xlabel="a row at the n-th occurrence", ylabel="table, GiB (bars)", title=f"{ids:,} ids, adam")
    line = left.twinx()
    line.plot(counts, [r["auc"] for r in by_count.values()], "o-", color="#d9622b")
    line.set_ylabel("validation AUC (line)")
    points = {f"{name} n = 1": result for name, result in by_optimizer.items()}
    points |= {f"adam n = {count}": result for count, result in list(by_count.items())[1:]}
    for name, result in points.items():
        right.plot(result["table_bytes"] / 2**30, result["auc"], "o", label=name)
    right.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.02, 1.0))
    right.set(xlabel="table, GiB", ylabel="validation AUC", title=f"AUC by memory (attainable {best:.3f})")
    PLOT.parent.mkdir(exist_ok=True)
    figure.savefig(PLOT)
    print(f"\n{PLOT.relative_to(ROOT)}")


def main() -> None:
    arguments = parse_arguments(__doc__ or "")
    began = time.perf_counter()
    folder, truth = make_log(QUICK if arguments.quick else FULL)
    header = ("optimizer", "count", "rows", "table MiB", "peak MiB", "AUC", "logloss", "samples/s")
    print("{:>16} {:>6} {:>12} {:>12} {:>10} {:>9} {:>9} {:>11}".format(*header))
    by_count = {count: train(folder, count, "adam", is_encoded=count == 1) for count in THRESHOLDS}
    others = {name: train(folder, 1, name, is_encoded=False) for name in OPTIMIZERS if name != "adam"}
    by_optimizer = {"adam": by_count[1], **others}
    encodings = by_count[1]["encodings"]
    print("\npublished rows of adam, every id with a row:")
    for name, values in encodings.items():
        print(f"{name:>16} {values['row_bytes']:>6.0f} bytes per row, AUC {values['auc']:.5f}")
    draw(by_count, by_optimizer, truth["auc"])
    result = (
        {"ids": by_count[1]["rows"], "samples": by_count[1]["samples"], "auc_attainable": truth["auc"]}
        | {f"auc_count_{c}": r["auc"] for c, r in by_count.items()}
        | {f"table_mib_count_{c}": r["table_bytes"] / 2**20 for c, r in by_count.items()}
        | {f"rows_count_{c}": r["rows"] for c, r in by_count.items()}
        | {f"auc_{name}": r["auc"] for name, r in by_optimizer.items()}
        | {f"table_mib_{name}": r["table_bytes"] / 2**20 for name, r in by_optimizer.items()}
        | {f"auc_published_{name}": values["auc"] for name, values in encodings.items()}
        | {f"row_bytes_published_{name}": values["row_bytes"] for name, values in encodings.items()}
        | {"peak_mib": max(r["peak_bytes"] for r in [*by_count.values(), *others.values()]) / 2**20}
        | {"seconds": time.perf_counter() - began, "quick": arguments.quick}
    )
    rounded = {name: round(value, 5) if isinstance(value, float) else value for name, value in result.items()}
    print(json.dumps(rounded | stamp()))


if __name__ == "__main__":
    main()
