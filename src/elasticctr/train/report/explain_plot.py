"""The plot of explain.json: what each slot is worth, with confidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from elasticctr.train.report.plots import COLORS, FAINT, INK, new_figure

_SHOWN = 30


def plot_importance(explained: Mapping[str, Any]) -> Figure | None:
    """Logloss gained by shuffling each slot, the most important on top; faint where it may be chance."""
    slots = [slot for slot in explained.get("slots", []) if slot["logloss_gain"]["mean"] is not None][:_SHOWN]
    if not slots:
        return None
    figure, axes = new_figure("What slots are worth", "logloss gained by shuffling the slot", "")
    figure.set_size_inches(7.2, 1.4 + 0.24 * len(slots))
    gains = [slot["logloss_gain"] for slot in slots]
    mean = np.array([gain["mean"] for gain in gains])
    low = np.clip(mean - np.array([gain["lo"] for gain in gains]), 0, None)
    high = np.clip(np.array([gain["hi"] for gain in gains]) - mean, 0, None)
    places = np.arange(len(slots))
    axes.barh(places, mean, color=[COLORS[0] if gain["is_clear"] else FAINT for gain in gains], height=0.7)
    axes.errorbar(mean, places, xerr=[low, high], fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    axes.set_yticks(places, [str(slot["slot"]) for slot in slots], parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0, color=FAINT, linewidth=0.8)
    return figure
