"""How much a model needs each slot: what it loses when the slot's values are shuffled between samples, and how steeply
its logits depend on the slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.train.explain.evidence import Evidence, SlotInput
from elasticctr.train.learner import Learner

_REPLICATES = 200  # bootstrap replicates, over all repeats together


@dataclass(frozen=True, slots=True)
class ShuffleCost:
    """What shuffling costs, with its 95 % interval: over shuffles and over samples."""

    mean: float | None
    lo: float | None
    hi: float | None

    @property
    def is_clear(self) -> bool:
        return self.lo is not None and self.lo > 0

    def as_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "lo": self.lo, "hi": self.hi, "is_clear": self.is_clear}


@dataclass(frozen=True, slots=True)
class Importance:
    slot: str
    auc_loss: ShuffleCost  # AUC with the slot less AUC with it shuffled
    logloss_gain: ShuffleCost  # logloss with it shuffled less logloss with it
    largest_change: float  # of any logit, by shuffling


def permute(
    learner: Learner,
    evidence: Evidence,
    *,
    repeats: int,
    seed: int,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Importance]:
    """The importance of every slot. Shuffles are the same for all slots."""
    base = evidence.score(learner, evidence.inputs)
    random = np.random.default_rng(seed)
    orders = [random.permutation(len(evidence)) for _ in range(repeats)]
    found = []
    for part in evidence.parts:
        found.append(_importance(learner, evidence, part, base, orders, seed))
        advance(repeats * len(evidence))
    return found


def _importance(
    learner: Learner,
    evidence: Evidence,
    part: SlotInput,
    base: NDArray[np.float32],
    orders: list[NDArray[np.int64]],
    seed: int,
) -> Importance:
    estimates, drawn = [], []
    largest = 0.0
    for repeat, order in enumerate(orders):
        shuffled = evidence.score(learner, evidence.exchange(part, order))
        largest = max(largest, float(np.abs(shuffled - base).max(initial=0.0)))
        pair = _native.Bootstrap(True)
        pair.update(base, evidence.labels, evidence.weights, shuffled)
        estimates.append(_differences(pair.estimate()))
        drawn.append(_differences(pair.draw(max(_REPLICATES // len(orders), 2), seed + repeat)))
    mean, replicates = np.concatenate(estimates).mean(axis=0), np.concatenate(drawn)
    auc, logloss = (_interval(float(mean[i]), replicates[:, i]) for i in (0, 1))
    return Importance(part.slot, auc, logloss, largest)


def _differences(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """[AUC lost, logloss gained] by what the second model of each row lacks."""
    return np.stack([rows[:, 0] - rows[:, 2], rows[:, 3] - rows[:, 1]], axis=1)


def _interval(mean: float, drawn: NDArray[np.float64]) -> ShuffleCost:
    defined = drawn[~np.isnan(drawn)]
    if np.isnan(mean) or len(defined) < 2:
        return ShuffleCost(None, None, None)
    lo, hi = np.quantile(defined, [0.025, 0.975])
    return ShuffleCost(mean, float(lo), float(hi))
