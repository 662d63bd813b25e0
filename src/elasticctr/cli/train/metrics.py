"""How commands show metrics: figures by split, confidence intervals, worst segments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticctr.cli.output import print_table

SHOWN = ("rows", "auc", "pr_auc", "gauc", "logloss", "ne", "copc", "ece", "ctr", "predicted_ctr")


def print_metrics(by_split: Mapping[str, Mapping[str, Any]]) -> None:
    from elasticctr.train.metrics.label_metrics import split_labels

    by_split = dict(split_labels(by_split))
    ranked = dict.fromkeys(k for one in by_split.values() for k in one if k.startswith(("ndcg@", "recall@")))
    names = [*SHOWN, *ranked]
    shown = [name for name in names if any(name in metrics for metrics in by_split.values())]
    rows = [[split, *(show_figure(metrics.get(name)) for name in shown)] for split, metrics in by_split.items()]
    print_table("metrics", ["split", *(f"#{name}" for name in shown)], rows)


def show_figure(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.5f}"


def print_confidence(confidence: Mapping[str, Any]) -> None:
    from elasticctr.train.report.segments import confidence_rows

    share = f"{confidence['level'] * 100:g} %"
    rows = []
    for whose, name, one in confidence_rows(confidence):
        verdict = "" if "is_clear" not in one else "clear" if one["is_clear"] else "within noise"
        rows.append([whose, name, *(show_figure(one[key]) for key in ("value", "sd", "lo", "hi")), verdict])
    title = f"confidence ({share}, {confidence['replicates']} replicates)"
    print_table(title, ["of", "metric", "#value", "#sd", "#lo", "#hi", "verdict"], rows)


def print_segments(segments: Mapping[str, Any]) -> None:
    for slot, report in segments.items():
        hidden = ("weight",)
        columns = [key for key in (report["worst"] or [{}])[0] if key not in hidden]
        found = f"{report['found']} of {report['tested']} values with {report['min_samples']} samples or more"
        title = f"{slot}: worst by {report['by']}, {found}; field ECE {show_figure(report['field_ece'])}"
        rows = [[row["value"], *(show_figure(row[key]) for key in columns[1:])] for row in report["worst"]]
        print_table(title, [columns[0] if columns else "value", *(f"#{key}" for key in columns[1:])], rows)
