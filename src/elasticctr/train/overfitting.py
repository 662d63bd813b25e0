"""Notices a model that memorises its training data: the second-epoch cliff of CTR models.

Embeddings of rare feasigns are hardly trained after one pass and know their few samples by the second: the training
loss falls at once, validation gets worse, and no later epoch repairs it. A run passes in every evaluation; the warning
comes once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# Relative changes of logloss. A healthy second epoch gains a little in training, too: progressive loss of the first one
# includes the start from nothing. What makes it a cliff is that validation pays for it, by more than its noise.
TRAIN_FALL = 0.01
VALID_RISE = 0.001


@dataclass(frozen=True, slots=True)
class EpochResult:
    """The last evaluation in an epoch, and the progressive training loss of the epoch up to it."""

    epoch: int  # counted from 1
    train_logloss: float
    logloss: float  # of the validation data, as auc
    auc: float | None


@dataclass(frozen=True, slots=True)
class Overfitting:
    """The best epoch before, and the one that is worse."""

    best: EpochResult
    now: EpochResult

    @property
    def text(self) -> str:
        best, now = self.best, self.now
        auc = "" if best.auc is None or now.auc is None else f" and its AUC fell from {best.auc:.4f} to {now.auc:.4f}"
        epochs = "one epoch" if best.epoch == 1 else f"{best.epoch} epochs"
        return (
            f"overfitting after {epochs}: in epoch {now.epoch} the training logloss fell from {best.train_logloss:.4f} "
            f"to {now.train_logloss:.4f}, but the validation logloss rose from {best.logloss:.4f} to "
            f"{now.logloss:.4f}{auc}. Rare feasigns are being memorised, and more epochs make it worse. "
            f"Train {epochs} (train.epochs: {best.epoch}) or let the run stop itself (train.early_stopping); for more "
            "epochs give rare feasigns no row (sparse.admission.count or sparse.vocabulary) and hold back the others "
            "(sparse.optimizer.l2). The best state so far is kept and is what eval, predict and publish use."
        )

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "overfitting", "text": self.text, "best": asdict(self.best), "now": asdict(self.now)}


class OverfittingWatch:
    def __init__(self) -> None:
        self._best: EpochResult | None = None  # of the epochs before the latest one
        self._latest: EpochResult | None = None
        self._is_told = False

    def see(self, epoch: int, train_logloss: float | None, valid: Mapping[str, Any]) -> Overfitting | None:
        """Takes in an evaluation in, or at the end of, epoch number `epoch`. Not None at most once in a run."""
        if train_logloss is None or valid.get("logloss") is None:
            return None
        now = EpochResult(epoch, float(train_logloss), float(valid["logloss"]), valid.get("auc"))
        before = self._latest
        if before is not None and before.epoch < epoch and (self._best is None or before.logloss < self._best.logloss):
            self._best = before
        self._latest = now
        if self._is_told or self._best is None or not _is_cliff(self._best, now):
            return None
        self._is_told = True
        return Overfitting(self._best, now)

    def state(self) -> dict[str, Any]:
        results = {"best": self._best, "latest": self._latest}
        return {name: None if r is None else asdict(r) for name, r in results.items()} | {"is_told": self._is_told}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._best = None if state["best"] is None else EpochResult(**state["best"])
        self._latest = None if state["latest"] is None else EpochResult(**state["latest"])
        self._is_told = bool(state["is_told"])


def _is_cliff(best: EpochResult, now: EpochResult) -> bool:
    if now.train_logloss > best.train_logloss * (1 - TRAIN_FALL) or now.logloss < best.logloss * (1 + VALID_RISE):
        return False
    # A logloss that rises while the order of scores gets better is a matter of calibration, not of this.
    return best.auc is None or now.auc is None or now.auc < best.auc
