"""Strategies and encodings against one process on the same data: AUC on held-out samples over several seeds, samples
per second and bytes on the wire per sample, with 2 trainers and 2 pservers on this machine.

If trainers step together (sync, hybrid), each takes its share of the batch, so that a step has as many samples as in
one process; otherwise each takes whole batches.

Seeds decide initial parameters and the order of samples, so the noise includes both. Runs are kept in .bench/strategies
as they end: an interrupted benchmark continues, `--anew` discards them.

A cost is within noise if it is at most two standard errors of a difference of means: 2 s sqrt(2 / seeds), where s is
the standard deviation over seeds, pooled over all contestants, since few seeds say little about one of them."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

import measure
from elasticctr.train import load_job

PAIRS = ["sync", "hybrid", "async", "half_async", "geo"]
GROUPED = {"sync", "hybrid"}
ONE = "one process"
BATCH = 128  # of the synthetic job
SHUFFLED = 20_000  # samples mixed at a time


@dataclass(frozen=True)
class Run:
    name: str
    seed: int
    auc: float
    samples_per_s: float
    bytes_per_sample: float


@dataclass
class Contestant:
    """One way to train, and its results with each seed."""

    name: str
    settings: dict[str, str]
    runs: list[Run] = field(default_factory=list)

    @property
    def auc(self) -> float:
        return statistics.fmean(run.auc for run in self.runs)

    @property
    def deviation(self) -> float:
        return statistics.stdev(run.auc for run in self.runs) if len(self.runs) > 1 else math.nan


def make_contestants(trainers: int, pservers: int, batch_size: int) -> list[Contestant]:
    counts = {"cluster.trainers": str(trainers), "cluster.pservers": str(pservers)}
    found = [Contestant(ONE, {"cluster": "null"})]
    for name in PAIRS:
        share = {"train.batch_size": str(max(batch_size // trainers, 1))} if name in GROUPED else {}
        found.append(Contestant(name, {**counts, "cluster.strategy": name, **share}))
    apart = {"cluster.strategy": "hybrid", "cluster.step_rows": "apart"}
    found.append(
        Contestant("hybrid apart", {**counts, **apart, "train.batch_size": str(max(batch_size // trainers, 1))})
    )
    for encoding in ("fp16", "int8"):
        short = {"cluster.rows_as": encoding, "cluster.gradients_as": encoding}
        found.append(Contestant(f"async {encoding}", {**counts, "cluster.strategy": "async", **short}))
    return found


def make_data(folder: Path, rows: int) -> dict[str, Any]:
    """A synthetic log of the usual shape and the job that learns from it. A tenth is held out."""
    log = folder / "log"
    command = ["data", "synth", str(log), "--rows", str(rows), "--files", "4", "--max-cardinality", "20000", "--json"]
    truth = json.loads(run_elasticctr(command))
    print(f"{rows:,} samples of a synthetic log; best attainable AUC {truth.get('auc', float('nan')):.4f}", flush=True)
    return {
        "schema": str(log / "schema.yaml"),
        "data": {
            "train": {"path": str(log / "part-*"), "fraction": [0.0, 0.9], "shuffle_rows": SHUFFLED},
            "test": {"path": str(log / "part-*"), "fraction": [0.9, 1.0]},
        },
        "model": {"name": "deepfm", "dim": 8, "hidden": [64, 32]},
        "train": {"batch_size": BATCH, "threads": 1},
        "cluster": {"chunk_mib": 2.0, "every": 20, "merge": 4},
    }


def run_elasticctr(arguments: list[str], timeout_s: float = 1800.0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "elasticctr", *arguments], capture_output=True, text=True, timeout=timeout_s
    )
    if done.returncode != 0:
        raise SystemExit(f"elasticctr {' '.join(arguments)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def run_once(contestant: Contestant, job: Path, run: Path, seed: int) -> Run:
    arguments = ["train", str(job), "--run-dir", str(run), "--json", "--set", f"train.seed={seed}"]
    if contestant.name != ONE:
        arguments += ["--on", "local"]
    for key, value in contestant.settings.items():
        arguments += ["--set", f"{key}={value}"]
    result = json.loads(run_elasticctr(arguments))
    told = [re.search(r"([\d,]+) bytes on the wire", path.read_text()) for path in run.rglob("*trainer*.log")]
    wire = sum(int(found[1].replace(",", "")) for found in told if found)
    samples = max(result["samples"], 1)
    return Run(contestant.name, seed, result["metrics"]["test"]["auc"], result["samples_per_s"], wire / samples)


class Kept:
    """The runs that have ended, one JSON line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._runs = {(run.name, run.seed): run for run in (Run(**json.loads(line)) for line in lines)}

    def find(self, name: str, seed: int) -> Run | None:
        return self._runs.get((name, seed))

    def add(self, run: Run) -> None:
        self._runs[run.name, run.seed] = run
        with self._path.open("a") as lines:
            lines.write(json.dumps(asdict(run)) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data and fewer seeds")
    parser.add_argument("--job", help="a job of your own with data.test, instead of the synthetic log")
    parser.add_argument("--seeds", type=int, help="runs of each; default 5, quick 2")
    parser.add_argument("--rows", type=int, help="samples of the synthetic log; default 600,000, quick 60,000")
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--pservers", type=int, default=2)
    parser.add_argument("--anew", action="store_true", help="discard kept runs")
    parser.add_argument("--only", help="comma-separated names of contestants, in addition to the single process")
    options = parser.parse_args()
    batch_size = load_job(options.job).train.batch_size if options.job else BATCH
    contestants = make_contestants(options.trainers, options.pservers, batch_size)
    if options.only:
        wanted = {ONE, *options.only.split(",")}
        contestants = [c for c in contestants if c.name in wanted]
    seeds = options.seeds or (2 if options.quick else 5)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = options.rows or (60_000 if options.quick else 600_000)
    what = hashlib.sha256(Path(options.job).read_bytes()).hexdigest()[:8] if options.job else str(rows)
    folder = measure.WORK / "strategies" / f"{what}-{options.trainers}-{options.pservers}"
    if options.anew:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    job = Path(options.job) if options.job else folder / "job.yaml"
    if not job.exists():
        job.write_text(yaml.safe_dump(make_data(folder, rows)))
    kept = Kept(folder / "runs.jsonl")
    for seed in range(seeds):
        for number, contestant in enumerate(contestants):
            directory = folder / f"run-{seed}-{number}"
            run = kept.find(contestant.name, seed)
            if run is None:
                shutil.rmtree(directory, ignore_errors=True)
                run = run_once(contestant, job, directory, seed)
                shutil.rmtree(directory)
                kept.add(run)
            contestant.runs.append(run)
            figures = f"{run.samples_per_s:,.0f} samples/s, {run.bytes_per_sample:,.0f} bytes/sample"
            print(f"seed {seed} {contestant.name:>12}: AUC {run.auc:.5f}, {figures}", flush=True)
    report(contestants)


def measure_noise(contestants: list[Contestant]) -> float:
    """Two standard errors of the difference of two contestants' means; not a number with one seed."""
    pooled = statistics.fmean(c.deviation**2 for c in contestants)
    return 2 * math.sqrt(2 * pooled / len(contestants[0].runs))


def judge(cost: float, noise: float) -> str:
    if math.isnan(noise):
        return "one seed cannot tell"
    return "within noise" if abs(cost) <= noise else "worse" if cost > 0 else "better"


def report(contestants: list[Contestant]) -> None:
    base, seeds = contestants[0], len(contestants[0].runs)
    noise = measure_noise(contestants)
    result = {"auc_one_process": base.auc, "seeds": float(seeds)}
    if seeds > 1:
        result["noise"] = noise
    print(f"\nwithin noise: a difference of at most {noise:.5f}, two standard errors with {seeds} seeds")
    print(f"{'':>14} {'AUC':>9} {'± seeds':>9} {'cost':>9} {'samples/s':>11} {'bytes/sample':>13}")
    for c in contestants:
        rate = statistics.median(run.samples_per_s for run in c.runs)
        wire = statistics.median(run.bytes_per_sample for run in c.runs)
        cost = base.auc - c.auc
        said = "" if c is base else judge(cost, noise)
        print(f"{c.name:>14} {c.auc:9.5f} {c.deviation:9.5f} {cost:9.5f} {rate:11,.0f} {wire:13,.0f}  {said}")
        key = c.name.replace(" ", "_")
        if c is not base:
            result |= {f"auc_cost_{key}": cost, f"bytes_{key}": wire}
            result |= {f"is_within_noise_{key}": float(cost <= noise)} if seeds > 1 else {}
        result[f"samples_per_s_{key}"] = rate
    measure.print_result(result)


if __name__ == "__main__":
    main()
