"""Draws docs/images/benchmarks/*.svg from benchmarks/report.md.

usage: python benchmarks/plot.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

from read_report import Result, number, read_report

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images" / "benchmarks"
OURS, OURS_TOO, PEER, PEERS, LIMIT = "#4f46e5", "#0f9488", "#9aa3b2", ("#9aa3b2", "#b8a58a", "#c0a3b8"), "#b45309"
TEXT = "#7d8696"  # readable on light and on dark pages
STYLE = {
    "axes.edgecolor": TEXT,
    "axes.labelcolor": TEXT,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": TEXT,
    "axes.titlesize": 11,
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.size": 10,
    "legend.frameon": False,
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "elasticctr",
    "text.color": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
}


def main() -> None:
    mpl.use("svg")
    mpl.rcParams.update(STYLE)
    IMAGES.mkdir(parents=True, exist_ok=True)
    report = read_report()
    for draw in (headline, predict, cube, train, pservers, strategies, quality):
        figure = draw(report)
        figure.savefig(IMAGES / f"{draw.__name__}.svg", metadata={"Date": None})
        plt.close(figure)


def closed_loop(result: Result) -> dict[int, dict[str, float]]:
    """Candidates → server → requests per second, of the best shape of each kind of server."""
    found: dict[int, dict[str, float]] = {}
    candidates = 0
    for line in result.text.splitlines():
        head, _, rest = line.partition(" candidates per request; ")
        if rest:
            candidates = int(head)
        name, _, rest = line.partition(" closed loop,")
        if rest:
            rate = number(rest.split(":", 1)[1].split()[0])
            found.setdefault(candidates, {})[name.split()[0]] = rate
    return found


def key_rates(result: Result) -> dict[int, dict[str, float]]:
    """Batch → server → million keys per second; 1 M rows of 40 bytes, uniform keys."""
    found: dict[int, dict[str, float]] = {}
    batch = 0
    for line in result.text.splitlines():
        if line.startswith(" 1,000,000 x  40 B uniform batch"):
            words = line.partition("batch")[2].split()
            batch, name = int(words[0]), " ".join(words[1:]).partition(":")[0]
            found.setdefault(batch, {})[name] = float(line.partition(": ")[2].split()[0])
        elif "hash map in process" in line and batch and "hash map" not in found[batch]:
            found[batch]["hash map"] = float(line.split(":")[1].split()[0])
        elif "256 B" in line:
            break
    return found


def training_rates(result: Result, cell: str) -> dict[str, float]:
    """Contender → samples per second."""
    block = result.text.partition(f"{cell}\n")[2].partition("\n\n")[0]
    return {line[:25].strip(): number(line[25:].split()[0]) for line in block.splitlines()[1:] if line[2] != " "}


def headline(report: dict[str, Result]) -> Any:
    loop, keys = closed_loop(report["predict"])[10], key_rates(report["cube"])[100]
    rates = training_rates(report["train"], "fp32, batch 4096")
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 2.3))
    panels = (
        (
            "Predictions, 10 candidates each\nthousand requests/s, one core",
            {
                "ElasticCTR": loop["elasticctr"] / 1e3,
                "FastAPI": loop["fastapi"] / 1e3,
                "BentoML": loop["bentoml"] / 1e3,
                "Ray Serve": loop["rayserve"] / 1e3,
            },
        ),
        (
            "Row lookups, batches of 100\nmillion keys/s, one core",
            {"ElasticCTR Cube": keys["cube"], "… its Redis port": keys["cube redis"], "Redis 7": keys["redis"]},
        ),
        (
            "Training Wide & Deep in fp32\nthousand samples/s, two cores",
            {
                "ElasticCTR": rates["ours parsed"] / 1e3,
                "TorchRec": rates["torchrec tbe"] / 1e3,
                "PyTorch": rates["torch lazy_compiled"] / 1e3,
                "PaddlePaddle": rates["paddle fused"] / 1e3,
            },
        ),
    )
    for axis, (title, bars) in zip(axes, panels, strict=True):
        colours = [OURS if name[0] in "E" else OURS_TOO if name[0] == "…" else PEER for name in bars]
        drawn = axis.barh(list(bars), list(bars.values()), color=colours, height=0.65)
        axis.bar_label(drawn, [f"{value:.3g}" for value in bars.values()], padding=3)
        axis.set_title(title, loc="left")
        axis.invert_yaxis()
        axis.set_xticks([])
        axis.spines["bottom"].set_visible(False)
        axis.margins(x=0.18)
    return figure


def predict(report: dict[str, Result]) -> Any:
    names = {"elasticctr": "ElasticCTR", "fastapi": "FastAPI", "bentoml": "BentoML", "rayserve": "Ray Serve"}
    rates = closed_loop(report["predict"])
    figure, axis = plt.subplots(figsize=(8, 3.2))
    _groups(axis, rates, names, (OURS, *PEERS))
    axis.set_yscale("log")
    axis.set_xlabel("candidates per request")
    axis.set_ylabel("requests/s")
    axis.legend(ncols=4)
    axis.margins(y=0.25)
    return figure


def cube(report: dict[str, Result]) -> Any:
    names = {"cube": "Cube", "cube redis": "Cube, Redis port", "redis": "Redis", "hash map": "hash map in the client"}
    figure, axis = plt.subplots(figsize=(8, 3.2))
    _groups(axis, key_rates(report["cube"]), names, (OURS, OURS_TOO, PEER, LIMIT))
    axis.set_xlabel("keys per lookup")
    axis.set_ylabel("million keys/s, one core")
    axis.legend(ncols=4)
    axis.margins(y=0.2)
    return figure


def _groups(axis: Any, values: dict[int, dict[str, float]], names: dict[str, str], colours: tuple[str, ...]) -> None:
    width = 0.8 / len(names)
    for i, (key, label) in enumerate(names.items()):
        heights = [group[key] for group in values.values()]
        places = [at + (i - (len(names) - 1) / 2) * width for at in range(len(values))]
        bars = axis.bar(places, heights, width * 0.92, label=label, color=colours[i])
        axis.bar_label(bars, [f"{h:,.0f}" if h >= 100 else f"{h:.1f}" for h in heights], fontsize=7.5, padding=1)
    axis.set_xticks(range(len(values)), [str(one) for one in values])


def train(report: dict[str, Result]) -> Any:
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True)
    for axis, cell in zip(axes, ("fp32, batch 4096", "bf16, batch 4096"), strict=True):
        rates = training_rates(report["train"], cell)
        colours = [OURS if name.startswith("ours") else LIMIT if name.startswith("mlp") else PEER for name in rates]
        bars = axis.barh(list(rates), [rate / 1e3 for rate in rates.values()], color=colours, height=0.75)
        axis.bar_label(bars, [f"{rate / 1e3:.0f}" for rate in rates.values()], padding=3, fontsize=8.5)
        axis.set_title(cell, loc="left")
        axis.set_xlabel("thousand samples/s")
        axis.invert_yaxis()
    return figure


def pserver_costs(result: Result) -> list[tuple[str, str, float]]:
    pattern = r"^  ((?:one|\d) p[\w ,]*?)\s+(512|4096)\s+[\d.]+\s+([\d.]+)\s+[\d,]+$"
    return [(name.replace("  ", " "), batch, float(cost)) for name, batch, cost in result.find(pattern)]


def plural(setup: str) -> str:
    return re.sub(r"([2-9] \w+)", r"\1s", setup)


def pservers(report: dict[str, Result]) -> Any:
    costs = pserver_costs(report["ps"])
    figure, axis = plt.subplots(figsize=(8, 3.4))
    labels = [f"{plural(name)}, batches of {batch}" for name, batch, _ in costs]
    colours = [OURS if cost <= 1.25 else "#be185d" for *_, cost in costs]
    bars = axis.barh(labels, [cost for *_, cost in costs], color=colours, height=0.7)
    axis.bar_label(bars, [f"{cost:.2f}" for *_, cost in costs], padding=3, fontsize=8.5)
    axis.axvline(1.25, color=LIMIT, linestyle="--")
    axis.text(1.255, -0.75, "target 1.25", color=LIMIT, fontsize=9)
    axis.set_xlim(0, 1.6)
    axis.set_xlabel("CPU per sample of all processes, over that of one process")
    axis.invert_yaxis()
    return figure


def strategy_costs(report: dict[str, Result]) -> dict[str, tuple[float, float]]:
    """Strategy → AUC cost and bytes per sample; those of `async` from the run with dense gradients as bf16."""
    found: dict[str, tuple[float, float]] = {}
    for name in ("strategies", "strategies_bf16"):
        figures = report[name].figures
        for key in figures:
            if key.startswith("auc_cost_"):
                one = key.removeprefix("auc_cost_")
                found[one] = (figures[key], figures[f"bytes_{one}"])
    return found


def strategies(report: dict[str, Result]) -> Any:
    costs = strategy_costs(report)
    noise = report["strategies"].figures["noise"]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.1), sharey=True)
    names = [name.replace("_", " ") for name in costs]
    axes[0].axvspan(-noise, noise, color=TEXT, alpha=0.2, linewidth=0)
    axes[0].barh(names, [cost for cost, _ in costs.values()], color=OURS, height=0.65)
    axes[0].axvline(0, color=TEXT, linewidth=0.8)
    axes[0].set_title("AUC below one process (left of 0: above); shaded: noise", loc="left", fontsize=9)
    bars = axes[1].barh(names, [size for _, size in costs.values()], color=OURS_TOO, height=0.65)
    axes[1].bar_label(bars, [f"{size:,.0f}" for _, size in costs.values()], padding=3, fontsize=8.5)
    axes[1].set_title("bytes per sample on the wire", loc="left", fontsize=9)
    axes[1].margins(x=0.15)
    axes[0].invert_yaxis()
    return figure


def frappe(result: Result) -> list[tuple[str, str, float, float, float | None, str]]:
    """Model, width, AUC, its deviation, the published AUC and the verdict, in the order of the report."""
    pattern = r"^ *(\w+) +(\d+|-) +5 +([\d.]+) +([\d.]+) +[\d.]+ +([\d.]+|-) +(?:[\d.]+|-) +(?:[-+][\d.]+ +(\w+))?"
    return [
        (name, width, float(auc), float(sd), None if best == "-" else float(best), verdict or "")
        for name, width, auc, sd, best, verdict in result.find(pattern)
    ]


def quality(report: dict[str, Result]) -> Any:
    rows = [row for row in frappe(report["quality"]) if row[4] is not None and row[0] != "lr"]
    names = [f"{name} ({width})" for name, width, *_ in rows]
    figure, axis = plt.subplots(figsize=(8, 4))
    places = range(len(rows))
    axis.errorbar(
        [row[2] for row in rows],
        places,
        xerr=[2 * row[3] for row in rows],
        fmt="o",
        color=OURS,
        label="ElasticCTR, ± 2 sd",
    )
    axis.plot([row[4] for row in rows], places, "D", color=LIMIT, label="published by BARS", markersize=5)
    axis.set_yticks(places, names)
    axis.set_xlabel("AUC on Frappe (width in brackets)")
    axis.invert_yaxis()
    axis.legend()
    return figure


if __name__ == "__main__":
    main()
