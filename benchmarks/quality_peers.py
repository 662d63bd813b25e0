"""The zoo's models here, in FuxiCTR and in DeepCTR-Torch: the same files, seeds, sizes and recipe, one thread each.

AUC of the best epoch on validation, mean ± sd over seeds, and CPU and wall seconds per epoch. Ratios are of CPU
seconds, which other load on the machine hardly changes. Jobs are examples/zoo/NAME.yaml, data is Frappe as in
quality.py. Peers live in virtual environments of their own under .bench, made on first use. A run is kept in
.bench/quality_peers and not repeated while its job and what runs it are the same; --again forgets them. A gap of AUC
within 2 sd of the difference of the means is a tie; with one seed nothing is known about that."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

import measure
import quality
from contenders import environments

WORK = measure.WORK / "quality_peers"
SCRIPTS = measure.ROOT / "benchmarks" / "contenders"
PEERS = ("fuxictr", "deepctr")
DEEPCTR = ["lr", "fm", "dnn", "wide_deep", "deepfm", "dcn", "dcnv2", "xdeepfm", "autoint", "fibinet"]
MODELS = {"ours": [*DEEPCTR, "masknet", "finalmlp"], "fuxictr": [*DEEPCTR, "masknet", "finalmlp"], "deepctr": DEEPCTR}
QUICK = ["dnn", "deepfm", "dcnv2"]
QUICK_EPOCHS = 3


@dataclass(frozen=True)
class Run:
    """One training run."""

    stack: str
    model: str
    seed: int
    auc: float
    logloss: float
    epochs: int
    epoch_s: float  # wall; like the next two the median over epochs
    epoch_cpu_s: float
    steps_cpu_s: float  # of a peer: training steps alone, without its loader and evaluation
    peak_mib: float
    version: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, three models, three epochs")
    parser.add_argument("--models", help="comma-separated; default: all that a peer has")
    parser.add_argument("--seeds", type=int, help="runs of each; default 5, quick 1")
    parser.add_argument("--data", type=Path, default=measure.ROOT.parent / "shared" / "data")
    parser.add_argument("--again", action="store_true", help="forget runs that are kept")
    parser.add_argument("--kept", action="store_true", help="report what is kept and run nothing")
    options = parser.parse_args()
    if options.again:
        shutil.rmtree(WORK / "results", ignore_errors=True)
    made = quality.make_frappe(options.data)
    if made is None:
        raise SystemExit(f"{' and '.join(quality.FRAPPE)} are not in {options.data}; name their folder with --data")
    models = options.models.split(",") if options.models else QUICK if options.quick else MODELS["ours"]
    for name in models:
        if name not in MODELS["ours"]:
            raise SystemExit(f"no peer here has {name}; there are {', '.join(MODELS['ours'])}")
    runs = []
    for seed in range(options.seeds or (1 if options.quick else 5)):
        for name in models:
            job = make_job(name, seed, made[0], QUICK_EPOCHS if options.quick else None)
            for stack in MODELS:
                if name not in MODELS[stack] or (run := train(stack, job, options.kept)) is None:
                    continue
                runs.append(run)
                print(
                    f"{name} seed {seed} {stack}: AUC {run.auc:.5f}, logloss {run.logloss:.5f}, "
                    f"{run.epochs} epochs of {run.epoch_cpu_s:.2f} s CPU, {run.epoch_s:.2f} s",
                    flush=True,
                )
    report(runs)


def make_job(model: str, seed: int, settings: dict[str, Any], epochs: int | None) -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load((quality.ZOO / f"{model}.yaml").read_text())
    if isinstance(job["schema"], str):
        job["schema"] = yaml.safe_load((quality.ZOO / job["schema"]).read_text())
    job["data"]["train"]["path"] = settings["data.train.path"]
    job["data"]["valid"]["path"] = settings["data.valid.path"]
    job["train"] |= {"seed": seed, "threads": 1} | ({} if epochs is None else {"epochs": epochs})
    return job


def train(stack: str, job: dict[str, Any], kept_only: bool) -> Run | None:
    """The run of a job, from what is kept if it was done before. None: it is not kept, and that alone was asked for."""
    name = hashlib.sha256(json.dumps([stack, job, digest(stack)], sort_keys=True).encode()).hexdigest()[:20]
    kept = WORK / "results" / f"{name}.json"
    if kept.exists():
        return Run(**json.loads(kept.read_text()))
    if kept_only:
        return None
    python = Path(sys.executable) if stack == "ours" else environments.prepare(measure.WORK / "venvs", stack)
    folder = WORK / "runs" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "order.json").write_text(json.dumps(job))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if stack != "ours":  # nothing of ours may reach into theirs
        environment["PYTHONPATH"] = ""
    command = [str(python), str(SCRIPTS / f"quality_{stack}.py"), "order.json", "result.json"]
    with (folder / "log.txt").open("w") as log:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{stack} {job['model']['name']} failed: {(folder / 'log.txt').read_text()[-1500:]}")
    result = json.loads((folder / "result.json").read_text())
    run = Run(stack=stack, model=job["model"]["name"], seed=job["train"]["seed"], **result)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(run)))
    shutil.rmtree(folder)
    return run


def digest(stack: str) -> str:
    """Changes with anything a run depends on besides its job."""
    if stack == "ours":
        return quality.source_digest()
    texts = [path.read_bytes() for path in sorted(SCRIPTS.glob(f"quality_{stack}*.py"))]
    return hashlib.sha256(b"".join(texts) + json.dumps(environments.INSTALLS[stack]).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Cell:
    """The runs of one model in one stack."""

    runs: list[Run]

    @property
    def auc(self) -> float:
        return statistics.fmean(run.auc for run in self.runs)

    @property
    def sd(self) -> float | None:
        return statistics.stdev(run.auc for run in self.runs) if len(self.runs) > 1 else None

    @property
    def variance_of_mean(self) -> float:
        return 0.0 if self.sd is None else self.sd**2 / len(self.runs)

    def median(self, figure: str) -> float:
        return statistics.median(getattr(run, figure) for run in self.runs)


def report(runs: list[Run]) -> None:
    models: dict[str, dict[str, Cell]] = {}
    for run in runs:
        models.setdefault(run.model, {}).setdefault(run.stack, Cell([])).runs.append(run)
    versions = {run.stack: run.version for run in runs}
    print("\nfrappe, one thread: " + ", ".join(f"{stack} {version}" for stack, version in versions.items()))
    print(
        f"{'model':>10} {'stack':>8} {'seeds':>5} {'AUC':>8} {'± sd':>8} {'ours - it':>9} {'noise':>8} {'':>6} "
        f"{'CPU s/ep':>8} {'steps':>6} {'s/epoch':>7} {'epochs':>6} {'ours x':>6}"
    )
    result: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    for model, cells in models.items():
        for stack, cell in cells.items():
            figures.setdefault(model, {})[stack] = describe(cell) | compare(cells, stack)
            print_row(model, stack, figures[model][stack])
    for peer in PEERS:
        rows = [row[peer] for row in figures.values() if "speed" in row.get(peer, {})]
        if rows:
            result[f"speed_vs_{peer}"] = geometric_mean([row["speed"] for row in rows])
            result[f"steps_speed_vs_{peer}"] = geometric_mean([row["steps_speed"] for row in rows])
            result[f"auc_gap_{peer}"] = statistics.fmean(row["auc_gap"] for row in rows)
            print(
                f"{peer}: its epoch takes {result[f'speed_vs_{peer}']:.2f} times the CPU time of ours, its steps alone "
                f"{result[f'steps_speed_vs_{peer}']:.2f} times that of our epoch; AUC of ours minus its "
                f"{result[f'auc_gap_{peer}']:+.5f}, the mean of {len(rows)} models"
            )
    result["models"] = figures
    rounded = json.loads(json.dumps(result), parse_float=lambda text: round(float(text), 6))
    print(json.dumps({**rounded, **measure.stamp()}))


def describe(cell: Cell) -> dict[str, Any]:
    return {
        "seeds": len(cell.runs),
        "auc_mean": cell.auc,
        "auc_sd": cell.sd,
        "logloss_mean": statistics.fmean(run.logloss for run in cell.runs),
        "epochs": statistics.fmean(run.epochs for run in cell.runs),
        "epoch_s": cell.median("epoch_s"),
        "epoch_cpu_s": cell.median("epoch_cpu_s"),
        "steps_cpu_s": cell.median("steps_cpu_s") or None,
        "peak_mib": cell.median("peak_mib"),
    }


def compare(cells: dict[str, Cell], stack: str) -> dict[str, Any]:
    """Ours against a peer, on the seeds both have."""
    if stack == "ours" or "ours" not in cells:
        return {}
    seeds = {run.seed for run in cells[stack].runs} & {run.seed for run in cells["ours"].runs}
    if not seeds:
        return {}
    ours, its = (Cell([run for run in cells[key].runs if run.seed in seeds]) for key in ("ours", stack))
    noise = None if ours.sd is None else 2 * math.sqrt(ours.variance_of_mean + its.variance_of_mean)
    return {
        "auc_gap": ours.auc - its.auc,
        "auc_noise": noise,  # 2 sd of the difference of the means
        "speed": its.median("epoch_cpu_s") / ours.median("epoch_cpu_s"),
        "steps_speed": its.median("steps_cpu_s") / ours.median("epoch_cpu_s"),
    }


def print_row(model: str, stack: str, row: dict[str, Any]) -> None:
    def show(key: str, form: str) -> str:
        return "-" if row.get(key) is None else format(row[key], form)

    word = ""
    if row.get("auc_noise") is not None:
        word = "tie" if abs(row["auc_gap"]) <= row["auc_noise"] else "better" if row["auc_gap"] > 0 else "worse"
    print(
        f"{model:>10} {stack:>8} {row['seeds']:>5} {row['auc_mean']:8.5f} {show('auc_sd', '.5f'):>8} "
        f"{show('auc_gap', '+.5f'):>9} {show('auc_noise', '.5f'):>8} {word:>6} "
        f"{row['epoch_cpu_s']:8.2f} {show('steps_cpu_s', '.2f'):>6} {row['epoch_s']:7.2f} {row['epochs']:6.1f} "
        f"{show('speed', '.2f'):>6}"
    )


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


if __name__ == "__main__":
    main()
