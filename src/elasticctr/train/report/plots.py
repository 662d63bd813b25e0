"""The plots of a run as PNG files: loss and AUC over samples, calibration, ROC, how scores are spread.

Drawn from events and final metrics as docs/reference/run-directory.md lays them down. Needs no display.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

Event = Mapping[str, Any]

INK, FAINT = "#30343b", "#8a9099"
COLORS = ("#2f6fdb", "#d9622b", "#2a9d6f", "#8a55c8", "#b8860b")


def write_plots(events: Sequence[Event], metrics: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    """Draws every plot that has data. `metrics`: final metrics and curves by split. Returns the files, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    curves = [
        ("loss.png", plot_progress(events, "loss", "logloss", "Loss while training", "logloss")),
        ("auc.png", plot_progress(events, "auc", "auc", "AUC while training", "AUC")),
        ("calibration.png", plot_calibration(metrics)),
        ("roc.png", plot_roc(metrics)),
        ("scores.png", plot_scores(metrics)),
    ]
    return [path for name, figure in curves for path in save_plot(figure, folder / name)]


def save_plot(figure: Figure | None, path: Path) -> list[Path]:
    """Draws a figure into a file, [path]. Without one, an older file goes."""
    if figure is None:
        path.unlink(missing_ok=True)
        return []
    figure.savefig(path, dpi=160)
    return [path]


def plot_progress(events: Sequence[Event], train: str, evaluated: str, title: str, unit: str) -> Figure | None:
    """A value of train events, predicted before learning, and its twin of eval events, over samples seen."""
    series: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        is_train = event["event"] == "train"
        value = event.get(train if is_train else evaluated)
        if event["event"] in ("train", "eval") and value is not None:
            name = "train, progressive" if is_train else str(event.get("split", "eval"))
            name += f" {event['label']}" if "label" in event else ""
            series.setdefault(name, []).append((event["samples"], value))
    if not series:
        return None
    figure, axes = new_figure(title, "samples", unit)
    for color, (name, points) in zip(_cycle(len(series)), series.items(), strict=True):
        x, y = np.array(points, dtype=float).T
        if name.startswith("train"):
            _draw_noisy(axes, x, y, name, color)
        else:
            axes.plot(x, y, color=color, marker="o", markersize=5, linewidth=1.8, label=name, zorder=3)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0)
    _clip_outliers(axes, [value for points in series.values() for _, value in points])
    _add_legend(axes)
    return figure


def plot_calibration(metrics: Mapping[str, Mapping[str, Any]]) -> Figure | None:
    """Actual over predicted click rate, in bins of equal weight. On logarithmic axes where rates span decades."""
    splits = {name: values["calibration"] for name, values in metrics.items() if values.get("calibration")}
    if not splits:
        return None
    figure, axes = new_figure("Calibration", "predicted click rate", "actual click rate", is_square=True)
    rates = [row[side] for rows in splits.values() for row in rows for side in ("predicted", "actual") if row[side] > 0]
    low, high = (min(rates) / 1.3, max(rates) * 1.3) if rates else (0.0, 1.0)
    is_wide = low > 0 and high / low > 20
    if is_wide:
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_minor_formatter(NullFormatter())
    limits = (low, min(high, 1.0)) if is_wide else (0.0, min(high, 1.0))
    axes.plot(limits, limits, color=FAINT, linestyle=(0, (4, 4)), linewidth=1.2, label="perfect")
    for color, (name, rows) in zip(_cycle(len(splits)), splits.items(), strict=True):
        shown = [row for row in rows if row["actual"] > 0 or not is_wide]
        x, y = [row["predicted"] for row in shown], [row["actual"] for row in shown]
        axes.plot(x, y, color=color, marker="o", markersize=5, linewidth=1.6, label=name, zorder=3)
    axes.set_xlim(limits)
    axes.set_ylim(limits)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_percent())
    _add_legend(axes)
    return figure


def plot_roc(metrics: Mapping[str, Mapping[str, Any]]) -> Figure | None:
    splits = {name: values for name, values in metrics.items() if values.get("roc")}
    if not splits:
        return None
    figure, axes = new_figure("ROC", "false positive rate", "true positive rate", is_square=True)
    axes.plot((0, 1), (0, 1), color=FAINT, linestyle=(0, (4, 4)), linewidth=1.2)
    for color, (name, values) in zip(_cycle(len(splits)), splits.items(), strict=True):
        x, y = np.array(values["roc"], dtype=float).T
        auc = values.get("auc")
        axes.plot(x, y, color=color, linewidth=2, label=name if auc is None else f"{name}, AUC {auc:.4f}")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.003)
    _add_legend(axes)
    return figure


def plot_scores(metrics: Mapping[str, Mapping[str, Any]]) -> Figure | None:
    """How predictions of clicked and unclicked samples are spread, for the last split that has them."""
    splits = [(name, v["scores"]) for name, v in metrics.items() if v.get("scores") and v["scores"]["edges"]]
    if not splits:
        return None
    name, scores = splits[-1]
    figure, axes = new_figure(
        f"Predictions on {name}", "predicted click rate (last bin: all above)", "share of the class"
    )
    for color, key, label in ((COLORS[0], "negative", "not clicked"), (COLORS[1], "positive", "clicked")):
        axes.stairs(scores[key], scores["edges"], color=color, fill=True, alpha=0.22)
        axes.stairs(scores[key], scores["edges"], color=color, linewidth=1.6, label=label)
    axes.set_xlim(0, scores["edges"][-1])
    axes.xaxis.set_major_formatter(_percent())
    axes.yaxis.set_major_formatter(_percent())
    axes.set_ylim(bottom=0)
    _add_legend(axes)
    return figure


def new_figure(title: str, x_label: str, y_label: str, is_square: bool = False) -> tuple[Figure, Axes]:
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(5.2, 5.0) if is_square else (7.2, 4.2), layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", color=INK, pad=10)
    axes.set_xlabel(x_label, color=INK)
    axes.set_ylabel(y_label, color=INK)
    axes.grid(True, color="#e6e8eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelcolor=INK, labelsize=9, which="both")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#c4c8cd")
    return figure, axes


def _draw_noisy(axes: Axes, x: Any, y: Any, name: str, color: str) -> None:
    """The values themselves and, where there are many, their running mean."""
    span = len(y) // 40
    if span < 2:
        axes.plot(x, y, color=color, linewidth=1.6, label=name)
        return
    axes.plot(x, y, color=color, linewidth=0.8, alpha=0.3)
    sums = np.cumsum(np.insert(y, 0, 0.0))
    start = np.maximum(np.arange(len(y)) + 1 - span, 0)
    stop = np.arange(len(y)) + 1
    axes.plot(
        x, (sums[stop] - sums[start]) / (stop - start), color=color, linewidth=1.8, label=f"{name} (mean of {span})"
    )


def _clip_outliers(axes: Axes, values: Sequence[float]) -> None:
    """The first steps of a run would otherwise squeeze everything after them into a line."""
    low, high = np.quantile(values, (0.005, 0.98) if len(values) > 50 else (0.0, 1.0))
    margin = max(high - low, 1e-3) * 0.15
    axes.set_ylim(min(low, np.quantile(values, 0.02)) - margin, high + margin)


def _add_legend(axes: Axes) -> None:
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="best")


def _percent() -> FuncFormatter:
    return FuncFormatter(lambda value, _: f"{value * 100:g}%")


def _cycle(count: int) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(count)]
