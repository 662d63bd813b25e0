"""The section of a report about slots, made from explain.json."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from elasticctr.train.report.tables import make_table

Values = Mapping[str, Any]


def describe_slots(explained: Values) -> str:
    if not explained:
        return ""
    text = f"From {explained['samples']:,} samples, each slot shuffled {explained['repeats']} times."
    rows = [
        (
            slot["slot"],
            *(slot["auc_loss"][key] for key in ("mean", "lo", "hi")),
            *(slot["logloss_gain"][key] for key in ("mean", "lo", "hi")),
            slot["gradient"],
            slot["dead"] or ("" if slot["logloss_gain"]["is_clear"] else "may be chance"),
        )
        for slot in explained["slots"]
    ]
    header = ("slot", "AUC lost", "lo", "hi", "logloss gained", "lo", "hi", "|gradient × input|", "note")
    parts = [f"<p>{escape(text)}</p>", make_table(header, rows)]
    redundant = [(r["slot"], r["given"], r["determined"], r["similarity"]) for r in explained["redundant"]]
    if redundant:
        parts += ["<p>Slots that say nothing another does not say:</p>"]
        parts += [make_table(("slot", "known from", "share known", "similarity"), redundant)]
    for number, one in enumerate(explained["predictions"], start=1):
        title = f"Prediction {number}: score {one['score']:.5f}, label {one['label']:g}, logit {one['logit']:.4f}"
        added = [("(baseline)", one["baseline"]), *one["contributions"].items(), ("(not explained)", one["residual"])]
        parts += [f"<p>{escape(title)}</p>", make_table(("slot", "adds to the logit"), added)]
    return "".join(parts)
