"""AUC and logloss of the true probabilities themselves: no model can be expected to do better."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.synth.hidden import Floats

_BINS = 1 << 17
_RANGE = 24.0  # log-odds beyond this share the outermost bins
_HELD_ROWS = 1 << 18  # counted at a time, as each count walks all bins


@dataclass(slots=True)
class Attainable:
    """Adds up over any number of rows in fixed memory: log-odds are counted in bins of 0.0004."""

    rows: int = 0
    clicks: float = 0.0
    loss: float = 0.0
    _counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2 * _BINS, dtype=np.int64))
    _held: list[NDArray[np.int32]] = field(default_factory=list)
    _held_rows: int = 0

    def add(self, logits: Floats, labels: NDArray[np.float32]) -> None:
        clicked = labels > 0
        self.rows += len(labels)
        self.clicks += float(clicked.sum())
        self.loss += float(np.logaddexp(0.0, np.where(clicked, -logits, logits)).sum())
        bins = np.clip((logits + _RANGE) * (_BINS / (2 * _RANGE)), 0, _BINS - 1).astype(np.int32)
        self._held.append(bins + clicked.astype(np.int32) * _BINS)
        self._held_rows += len(bins)
        if self._held_rows >= _HELD_ROWS:
            self._count_held()

    def merge(self, other: Attainable) -> None:
        other._count_held()
        self.rows += other.rows
        self.clicks += other.clicks
        self.loss += other.loss
        self._counts += other._counts

    def _count_held(self) -> None:
        if self._held:
            self._counts += np.bincount(np.concatenate(self._held), minlength=2 * _BINS)
        self._held, self._held_rows = [], 0

    @property
    def ctr(self) -> float:
        return self.clicks / max(self.rows, 1)

    @property
    def logloss(self) -> float:
        return self.loss / max(self.rows, 1)

    @property
    def auc(self) -> float | None:
        """None where all rows are clicked, or none."""
        self._count_held()
        negatives, positives = self._counts.astype(np.float64).reshape(2, _BINS)
        if not negatives.any() or not positives.any():
            return None
        below = np.cumsum(negatives) - negatives / 2
        return float((positives * below).sum() / (positives.sum() * negatives.sum()))
