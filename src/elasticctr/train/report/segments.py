"""The sections of a report about what an evaluation with confidence and segments found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from elasticctr.train.report.tables import make_table, show

Values = Mapping[str, Any]


def describe_confidence(metrics: Mapping[str, Values]) -> str:
    return "".join(_confidence(split, v["confidence"]) for split, v in metrics.items() if v.get("confidence"))


def describe_segments(metrics: Mapping[str, Values]) -> str:
    return "".join(
        _segments(split, slot, found)
        for split, values in metrics.items()
        for slot, found in (values.get("segments") or {}).items()
    )


def confidence_rows(confidence: Values) -> Iterable[tuple[str, str, Values]]:
    """(whose, metric, interval) for everything in a `confidence` of metrics.json."""
    parts = {
        "this model": confidence,
        "the other": confidence.get("other"),
        "difference": confidence.get("difference"),
    }
    for whose, part in parts.items():
        if part is not None:
            yield from ((whose, name, part[name]) for name in ("auc", "logloss"))


def _confidence(split: str, confidence: Values) -> str:
    rows = [
        (whose, name, *(one[key] for key in ("value", "sd", "lo", "hi")), one.get("is_clear"))
        for whose, name, one in confidence_rows(confidence)
    ]
    text = f"On {split}: {confidence['level'] * 100:g} % intervals of {confidence['replicates']} bootstrap replicates."
    return f"<p>{escape(text)}</p>" + make_table(("of", "metric", "value", "sd", "lo", "hi", "clear"), rows)


def _segments(split: str, slot: str, found: Values) -> str:
    text = (
        f"{slot} on {split}: {found['found']} of {found['tested']} values with {found['min_samples']} samples or more "
        f"are worse by {found['by']} than chance explains. Field ECE {show(found['field_ece'])}, "
        f"field RCE {show(found['field_rce'])}."
    )
    names = [key for key in (found["worst"] or [{}])[0] if key != "weight"]
    return f"<p>{escape(text)}</p>" + make_table(names, ([row[name] for name in names] for row in found["worst"]))
