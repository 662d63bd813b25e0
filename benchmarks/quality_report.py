"""What quality.py prints: each model's mean and deviation beside the published or attainable figure."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from typing import Any

import measure

# Test AUC on Frappe_x1 as BARS publishes it: the leaderboard's figure, which is mostly the best of several runs, and
# the mean of five runs where there is one.
PUBLISHED = {
    "lr": 0.9356,
    "fm": 0.9671,
    "dnn": 0.9833,
    "wide_deep": 0.9841,
    "deepfm": 0.9842,
    "dcn": 0.9839,
    "dcnv2": 0.9845,
    "xdeepfm": 0.9845,
    "autoint": 0.9848,
    "masknet": 0.9837,
    "finalmlp": 0.9861,
    "finalnet": 0.9857,
}
PUBLISHED_MEANS = {
    "dnn": 0.98405,
    "wide_deep": 0.98307,
    "deepfm": 0.98395,
    "dcn": 0.98342,
    "dcnv2": 0.98382,
    "xdeepfm": 0.98414,
}


@dataclass(frozen=True)
class Run:
    """One training run."""

    data: str
    model: str
    seed: int
    auc: float
    logloss: float
    epochs: int
    epoch_s: float
    cpu_s: float  # of its process
    peak_mib: float
    sources: str
    labels: dict[str, float] = field(default_factory=dict)  # AUC of each, if there are several


def report(runs: list[Run], attainable: dict[str, float | None], label_bars: dict[str, dict[str, float]]) -> None:
    """`label_bars`: what can be attained on each label of a set with several."""
    result: dict[str, Any] = {}
    for data in dict.fromkeys(run.data for run in runs):
        best = attainable[data]
        print(f"\n{data}" + ("" if best is None else f": attainable AUC {best:.5f}"))
        print(
            f"{'model':>14} {'seeds':>5} {'AUC':>8} {'± sd':>8} {'logloss':>8} {'against':>8} {'gap':>8} {'':>14} "
            f"{'s/epoch':>8} {'epochs':>6} {'MiB':>6}"
        )
        rows = []
        for model in dict.fromkeys(run.model for run in runs if run.data == data):
            of = [run for run in runs if run.data == data and run.model == model]
            aucs = [run.auc for run in of]
            row: dict[str, Any] = {
                "auc_mean": statistics.fmean(aucs),
                "auc_sd": statistics.stdev(aucs) if len(aucs) > 1 else 0.0,
                "logloss_mean": statistics.fmean(run.logloss for run in of),
                "published_auc": PUBLISHED.get(model) if data == "frappe" else None,
                "published_mean": PUBLISHED_MEANS.get(model) if data == "frappe" else None,
                "seeds": len(of),
                "epoch_s": statistics.median(run.epoch_s for run in of),
                "epochs": statistics.fmean(run.epochs for run in of),
                "peak_mib": max(run.peak_mib for run in of),
            }
            for name in of[0].labels:
                of_label = [run.labels[name] for run in of]
                row.setdefault("labels", {})[name] = {
                    "auc_mean": statistics.fmean(of_label),
                    "auc_sd": statistics.stdev(of_label) if len(of_label) > 1 else 0.0,
                    "attainable_auc": label_bars[data][name],
                }
            rows.append((model, row))
        for model, row in sorted(rows, key=lambda pair: -pair[1]["auc_mean"]):
            bar = row["published_auc"] if data == "frappe" else best
            gap = None if bar is None else row["auc_mean"] - bar
            word = "" if gap is None else "tie" if abs(gap) < 2 * row["auc_sd"] else "above" if gap > 0 else "below"
            if gap is not None and gap < -0.002:
                word += " OUT OF LINE" if data == "frappe" else ""
            print(
                f"{model:>14} {row['seeds']:>5} {row['auc_mean']:8.5f} {row['auc_sd']:8.5f} {row['logloss_mean']:8.5f} "
                f"{'-' if bar is None else f'{bar:.4f}':>8} {'-' if gap is None else f'{gap:+.4f}':>8} {word:>14} "
                f"{row['epoch_s']:8.1f} {row['epochs']:6.1f} {row['peak_mib']:6.0f}"
            )
            for name, label in row.get("labels", {}).items():
                bar, gap = label["attainable_auc"], label["auc_mean"] - label["attainable_auc"]
                print(
                    f"{name:>14} {'':>5} {label['auc_mean']:8.5f} {label['auc_sd']:8.5f} {'':>8} {bar:8.4f} {gap:+8.4f}"
                )
        result[data] = {"attainable_auc": best, "models": dict(rows)}
    print(json.dumps({**json.loads(json.dumps(result), parse_float=lambda x: round(float(x), 6)), **measure.stamp()}))
