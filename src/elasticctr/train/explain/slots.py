"""Slots a model could do without: those that say nothing, and those that only repeat another."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elasticctr.train.explain.evidence import Evidence, SlotInput
from elasticctr.train.explain.importance import Importance

DETERMINED = 0.99  # from this share on, one slot repeats another
_NO_CHANGE = 1e-6  # of a logit: rounding
_ENOUGH = 0.2  # of a slot's entropy must be left by chance for its determination to mean something

Reason = Literal["absent", "one value", "no influence"]
Codes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Redundant:
    """`slot` says nothing that `given` does not say."""

    slot: str
    given: str
    determined: float  # share of what `slot` tells that is known from `given`, chance taken off
    similarity: float | None  # correlation of the two slots' contributions

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_dead(evidence: Evidence, importance: list[Importance]) -> dict[str, Reason]:
    """Slots that cannot matter on these samples, and why."""
    dead: dict[str, Reason] = {}
    for part, found in zip(evidence.parts, importance, strict=True):
        codes = evidence.values(part)
        if _is_absent(evidence, part):
            dead[part.slot] = "absent"
        elif codes is not None and len(codes) > 0 and codes.max() == 0:
            dead[part.slot] = "one value"
        elif found.largest_change <= _NO_CHANGE:
            dead[part.slot] = "no influence"
    return dead


def find_redundant(
    evidence: Evidence, contributions: NDArray[np.float64], dead: dict[str, Reason], *, seed: int
) -> list[Redundant]:
    """Pairs of slots of which one determines the other; `contributions` are [samples, slots]."""
    order = np.random.default_rng(seed).permutation(len(evidence))
    known: list[tuple[int, str, Codes]] = []
    for place, part in enumerate(evidence.parts):
        codes = None if part.is_dense or part.slot in dead else evidence.values(part)
        if codes is not None:
            known.append((place, part.slot, codes))
    found = []
    for place, slot, codes in known:
        for other, given, others in known:
            share = measure_determined(codes, others, order) if place != other else None
            if share is not None and share >= DETERMINED:
                similarity = _correlate(contributions[:, place], contributions[:, other])
                found.append(Redundant(slot, given, share, similarity))
    return found


def measure_determined(codes: Codes, given: Codes, order: NDArray[np.int64]) -> float | None:
    """1 - H(slot | given) / H(slot | given, shuffled): 1 if `given` settles the slot, 0 if it says nothing of it.

    Where the other slot has nearly as many values as there are samples it settles everything, shuffled or not: None.
    """
    chance = _conditional_entropy(codes, given[order])
    if chance <= _ENOUGH * _entropy(codes):
        return None
    return max(0.0, 1.0 - _conditional_entropy(codes, given) / chance)


def _is_absent(evidence: Evidence, part: SlotInput) -> bool:
    if part.number is not None:
        return len(evidence.batch.slot(part.number)[0]) == 0
    return not part.is_dense and not bool(evidence.inputs.flat[:, list(part.columns)].any())


def _entropy(codes: Codes) -> float:
    shares = np.unique(codes, return_counts=True)[1] / max(len(codes), 1)
    return float(-(shares * np.log(shares)).sum())


def _conditional_entropy(codes: Codes, given: Codes) -> float:
    joint = codes * np.uint64(int(given.max(initial=0)) + 1) + given
    return max(_entropy(joint) - _entropy(given), 0.0)


def _correlate(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    spread = float(a.std() * b.std())
    return float(((a - a.mean()) * (b - b.mean())).mean() / spread) if spread > 0 else None
