"""Runs of quality_peers.py as a table and keys: `python quality_peers_report.py FILE…` for files that --save made.

AUC comes from complete runs, on a GPU if there are any for the model; speed comes from runs on the CPU: CPU seconds per
epoch of one thread, which other load on the machine hardly changes. An AUC gap within 2 sd of the difference of the
means is a tie; one seed cannot tell."""

from __future__ import annotations

import json
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure

PEERS = ("fuxictr", "deepctr")
# DeepCTR-Torch's heads of autoint are narrower and its fibinet has no batch norm: shown, but not in the means.
DIFFERENT = {"deepctr": ("autoint", "fibinet")}


@dataclass(frozen=True)
class Run:
    """One training run."""

    stack: str
    model: str
    seed: int
    device: str
    is_complete: bool  # trained to the end, not for a given number of epochs
    auc: float
    logloss: float
    epochs: int
    epoch_s: float  # wall; like the next two the median over epochs
    epoch_cpu_s: float
    steps_cpu_s: float  # of a peer: training steps only, without loader and evaluation
    peak_mib: float
    version: str


@dataclass(frozen=True)
class Cell:
    """The runs of one model in one stack."""

    runs: list[Run]

    def on(self, device: str) -> list[Run]:
        return [run for run in self.runs if run.device == device]

    @property
    def for_auc(self) -> list[Run]:
        """The runs of one device and length, by seed."""
        runs = self.on("cuda") or self.on("cpu")
        kept = [run for run in runs if run.is_complete] or runs
        return list({run.seed: run for run in kept}.values())

    def speed(self, figure: str) -> float | None:
        """The median over the runs on the CPU."""
        values = [getattr(run, figure) for run in self.on("cpu")]
        return statistics.median(values) or None if values else None


@dataclass(frozen=True)
class Auc:
    mean: float
    sd: float | None  # None: there is one run
    variance_of_mean: float

    @classmethod
    def of(cls, runs: list[Run]) -> Auc:
        mean = statistics.fmean(run.auc for run in runs)
        if len(runs) < 2:
            return cls(mean, None, 0.0)
        sd = statistics.stdev(run.auc for run in runs)
        return cls(mean, sd, sd**2 / len(runs))


def report(runs: list[Run]) -> None:
    cells: dict[str, dict[str, Cell]] = {}
    for run in runs:
        cells.setdefault(run.model, {}).setdefault(run.stack, Cell([])).runs.append(run)
    versions = {run.stack: run.version for run in runs}
    print("\nfrappe, one thread: " + ", ".join(f"{stack} {version}" for stack, version in sorted(versions.items())))
    print(
        f"{'model':>10} {'stack':>8} {'on':>5} {'seeds':>5} {'AUC':>8} {'± sd':>8} {'ours - it':>9} {'noise':>8} "
        f"{'':>6} {'epochs':>6} {'CPU s/ep':>8} {'steps':>6} {'s/epoch':>7} {'ours x':>6}"
    )
    figures: dict[str, dict[str, Any]] = {}
    for model, of in cells.items():
        for stack in sorted(of, key=["ours", *PEERS].index):
            row = figures.setdefault(model, {})[stack] = describe(of[stack]) | compare(of, stack)
            print_row(model, stack, row)
    result: dict[str, Any] = {}
    for peer in PEERS:
        result |= summarize(
            peer,
            [row[peer] for model, row in figures.items() if peer in row and model not in DIFFERENT.get(peer, ())],
        )
    if agreement := compare_devices(cells):
        result["device_gaps"] = agreement
    result["models"] = figures
    rounded = json.loads(json.dumps(result), parse_float=lambda text: round(float(text), 6))
    print(json.dumps({**rounded, **measure.stamp()}))


def describe(cell: Cell) -> dict[str, Any]:
    runs = cell.for_auc
    auc = Auc.of(runs)
    return {
        "device": runs[0].device,
        "seeds": len(runs),
        "auc_mean": auc.mean,
        "auc_sd": auc.sd,
        "logloss_mean": statistics.fmean(run.logloss for run in runs),
        "epochs": statistics.fmean(run.epochs for run in runs),
        "epoch_s": cell.speed("epoch_s"),
        "epoch_cpu_s": cell.speed("epoch_cpu_s"),
        "steps_cpu_s": cell.speed("steps_cpu_s"),
        "peak_mib": cell.speed("peak_mib"),
    }


def compare(cells: dict[str, Cell], stack: str) -> dict[str, Any]:
    """Ours against a peer: AUC on common seeds, and CPU time."""
    if stack == "ours" or "ours" not in cells:
        return {}
    figures: dict[str, Any] = {}
    ours, its = cells["ours"], cells[stack]
    seeds = {run.seed for run in ours.for_auc} & {run.seed for run in its.for_auc}
    if seeds:
        a, b = (Auc.of([run for run in cell.for_auc if run.seed in seeds]) for cell in (ours, its))
        figures["auc_gap"] = a.mean - b.mean
        # 2 sd of the difference of the means
        figures["auc_noise"] = None if a.sd is None else 2 * math.sqrt(a.variance_of_mean + b.variance_of_mean)
    our_cpu_s, its_cpu_s = ours.speed("epoch_cpu_s"), its.speed("epoch_cpu_s")
    if our_cpu_s is not None and its_cpu_s is not None:
        figures["speed"] = its_cpu_s / our_cpu_s
        figures["steps_speed"] = (its.speed("steps_cpu_s") or math.nan) / our_cpu_s
    return figures


def summarize(peer: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    result = {}
    if fast := [row for row in rows if "speed" in row]:
        result[f"speed_vs_{peer}"] = geometric_mean([row["speed"] for row in fast])
        result[f"steps_speed_vs_{peer}"] = geometric_mean([row["steps_speed"] for row in fast])
        print(
            f"{peer}: its epoch takes {result[f'speed_vs_{peer}']:.2f} times the CPU time of ours, its steps alone "
            f"{result[f'steps_speed_vs_{peer}']:.2f} times that of our epoch: the geometric mean of {len(fast)} models"
        )
    if good := [row for row in rows if "auc_gap" in row]:
        result[f"auc_gap_{peer}"] = statistics.fmean(row["auc_gap"] for row in good)
        print(f"{peer}: AUC of ours minus its {result[f'auc_gap_{peer}']:+.5f}, the mean of {len(good)} models")
    return result


def compare_devices(cells: dict[str, dict[str, Cell]]) -> dict[str, dict[str, Any]]:
    """AUC on the CPU minus AUC on the GPU, for models with complete runs on both."""
    gaps: dict[str, dict[str, Any]] = {}
    for model, of in cells.items():
        for stack, cell in of.items():
            cpu, gpu = ([run for run in cell.on(device) if run.is_complete] for device in ("cpu", "cuda"))
            if len(cpu) < 2 or len(gpu) < 2:
                continue
            a, b = Auc.of(cpu), Auc.of(gpu)
            gap, noise = a.mean - b.mean, 2 * math.sqrt(a.variance_of_mean + b.variance_of_mean)
            gaps.setdefault(model, {})[stack] = {"cpu_seeds": len(cpu), "gap": gap, "noise": noise}
            print(f"{model} {stack}: AUC on the CPU, {len(cpu)} seeds, minus the GPU's {gap:+.5f}, noise {noise:.5f}")
    return gaps


def print_row(model: str, stack: str, row: dict[str, Any]) -> None:
    def show(key: str, form: str) -> str:
        return "-" if row.get(key) is None else format(row[key], form)

    word = ""
    if row.get("auc_noise") is not None:
        word = "tie" if abs(row["auc_gap"]) <= row["auc_noise"] else "better" if row["auc_gap"] > 0 else "worse"
    print(
        f"{model:>10} {stack:>8} {row['device']:>5} {row['seeds']:>5} {row['auc_mean']:8.5f} "
        f"{show('auc_sd', '.5f'):>8} {show('auc_gap', '+.5f'):>9} {show('auc_noise', '.5f'):>8} {word:>6} "
        f"{row['epochs']:6.1f} {show('epoch_cpu_s', '.2f'):>8} {show('steps_cpu_s', '.2f'):>6} "
        f"{show('epoch_s', '.2f'):>7} {show('speed', '.2f'):>6}"
    )


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def read_runs(path: Path) -> list[Run]:
    try:
        return [Run(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise SystemExit(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise SystemExit(f"{path} is not a file made by quality_peers.py --save") from None


if __name__ == "__main__":
    if not sys.argv[1:]:
        raise SystemExit(__doc__)
    report([run for name in sys.argv[1:] for run in read_runs(Path(name))])
