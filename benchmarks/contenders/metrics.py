"""AUC and logloss of held-out rows, the same numpy code for every stack."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def auc(labels: NDArray[np.float32], scores: NDArray[np.float64]) -> float:
    """Ties count half: bfloat16 scores have many."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle_rank = np.cumsum(counts) - (counts - 1) / 2
    clicked = labels > 0.5
    clicks = int(clicked.sum())
    above = middle_rank[place[clicked]].sum() - clicks * (clicks + 1) / 2
    return float(above / (clicks * (len(labels) - clicks)))


def logloss(labels: NDArray[np.float32], chances: NDArray[np.float64]) -> float:
    chances = np.clip(chances.astype(np.float64), 1e-7, 1 - 1e-7)
    return float(-np.mean(np.where(labels > 0.5, np.log(chances), np.log1p(-chances))))
