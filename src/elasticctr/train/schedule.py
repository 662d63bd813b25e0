"""What a run decides while it trains: the learning-rate scale, when to stop, and whether to warn of overfitting.

All state is a few numbers that go into the checkpoint, so a resumed run decides as the uninterrupted one would.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from elasticctr.train.job import TrainSettings
from elasticctr.train.metrics.label_metrics import pick
from elasticctr.train.overfitting import OverfittingWatch


def is_better(metric: str, value: float, than: float | None, min_delta: float) -> bool:
    """Whether `value` improves on `than`: logloss falls, everything else rises."""
    if than is None:
        return True
    return value < than - min_delta if metric == "logloss" else value > than + min_delta


@dataclass(slots=True)
class MetricWatch:
    """The best value of a metric so far and how many evaluations went by without a better one."""

    best: float | None = None
    stalled: int = 0

    def see(self, metric: str, value: float | None, min_delta: float) -> bool:
        if value is not None and is_better(metric, value, self.best, min_delta):
            self.best, self.stalled = value, 0
            return True
        self.stalled += 1
        return False


class Schedule:
    def __init__(self, settings: TrainSettings) -> None:
        self._settings = settings
        self._stopping = MetricWatch()
        self._plateau = MetricWatch()
        self._selection = MetricWatch()
        self._scale = 1.0
        self.overfitting = OverfittingWatch()

    def lr_scale(self, step: int) -> float:
        """The factor on every learning rate at batch number `step`, counted from 0."""
        warmup = self._settings.warmup_steps
        return self._scale * min(1.0, (step + 1) / warmup) if warmup else self._scale

    @property
    def scale(self) -> float:
        """The factor without warm-up."""
        return self._scale

    @property
    def should_stop(self) -> bool:
        stopping = self._settings.early_stopping
        return stopping is not None and self._stopping.stalled >= stopping.patience

    def see_evaluation(self, metrics: dict[str, Any]) -> bool:
        """Takes in a validation result; True if it is the best so far."""
        stopping, plateau = self._settings.early_stopping, self._settings.plateau
        metric = stopping.metric if stopping else "auc"
        value = pick(metrics, stopping.label if stopping else None).get(metric)
        is_best = self._selection.see(metric, value, 0.0)
        if stopping:
            self._stopping.see(metric, value, stopping.min_delta)
        if plateau:
            self._plateau.see(plateau.metric, pick(metrics, plateau.label).get(plateau.metric), plateau.min_delta)
            if self._plateau.stalled >= plateau.patience:
                self._scale = max(self._scale * plateau.factor, plateau.min_scale)
                self._plateau.stalled = 0
        return is_best

    def state(self) -> dict[str, Any]:
        return {
            "scale": self._scale,
            "stopping": asdict(self._stopping),
            "plateau": asdict(self._plateau),
            "selection": asdict(self._selection),
            "overfitting": self.overfitting.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._scale = float(state["scale"])
        self._stopping = MetricWatch(**state["stopping"])
        self._plateau = MetricWatch(**state["plateau"])
        self._selection = MetricWatch(**state["selection"])
        if "overfitting" in state:  # checkpoints of older versions have none
            self.overfitting.restore(state["overfitting"])
