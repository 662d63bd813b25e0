"""What each slot adds to a prediction: integrated gradients from a sample without values to the sample itself.

The baseline of a sparse slot is what a sample without values has (zeros; a sequence keeps its length), of a dense slot
the mean over the samples explained. A slot's contributions and those of all others add up to the logit less the logit
of the baseline; the number of steps is doubled until they do within `TOLERANCE`, or `MAX_STEPS` is reached.
Models are asked in evaluation mode; one that hides a gradient then leaves a residual.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elasticctr.models.inputs import Inputs, Sequence
from elasticctr.train.explain.evidence import Evidence, rows_of
from elasticctr.train.learner import Learner

TOLERANCE = 1e-3  # of max(1, |logit - baseline's logit|)
FIRST_STEPS = 8
MAX_STEPS = 4096


@dataclass(frozen=True, slots=True)
class Contributions:
    """Of some samples, in their order."""

    slots: list[str]
    values: NDArray[np.float64]  # [samples, slots]
    logits: NDArray[np.float64]
    baseline: NDArray[np.float64]  # logits
    steps: int

    @property
    def residual(self) -> NDArray[np.float64]:
        """What the contributions fail to explain of each logit."""
        residual: NDArray[np.float64] = self.logits - self.baseline - self.values.sum(axis=1)
        return residual


def contribute(learner: Learner, evidence: Evidence, samples: int, max_steps: int = MAX_STEPS) -> Contributions:
    """Contributions to the logits of the first `samples` samples. REQUIRES: samples >= 1."""
    found = [
        _contribute(learner, evidence, start, min(start + evidence.at_once, samples), max_steps)
        for start in range(0, min(samples, len(evidence)), evidence.at_once)
    ]
    return Contributions(
        [part.slot for part in evidence.parts],
        np.concatenate([one.values for one in found]),
        np.concatenate([one.logits for one in found]),
        np.concatenate([one.baseline for one in found]),
        max(one.steps for one in found),
    )


def gradient_importance(learner: Learner, evidence: Evidence) -> NDArray[np.float64]:
    """The weighted mean over samples of |gradient × input| of each slot, inputs counted from their baseline."""
    sums = np.zeros(len(evidence.parts))
    for start in range(0, len(evidence), evidence.at_once):
        stop = min(start + evidence.at_once, len(evidence))
        inputs = rows_of(evidence.inputs, start, stop)
        products = _by_slot(evidence, _products(learner, evidence, inputs, torch.ones(stop - start)))
        sums += evidence.weights[start:stop].astype(np.float64) @ np.abs(products)
    total = float(evidence.weights.astype(np.float64).sum())
    return sums / total if total > 0 else sums


def _contribute(learner: Learner, evidence: Evidence, start: int, stop: int, max_steps: int) -> Contributions:
    stop = min(stop, len(evidence))
    inputs = rows_of(evidence.inputs, start, stop)
    logits = _logits(learner, evidence, inputs)
    baseline = _logits(learner, evidence, _at(evidence, inputs, torch.zeros(stop - start)))
    allowed = TOLERANCE * np.maximum(1.0, np.abs(logits - baseline))
    steps, pending = FIRST_STEPS, np.arange(stop - start)
    values = np.zeros((stop - start, len(evidence.parts)))
    while True:
        values[pending] = _integrate(learner, evidence, _take(inputs, pending), steps)
        residual = logits - baseline - values.sum(axis=1)
        pending = np.nonzero(np.abs(residual) > allowed)[0]
        if len(pending) == 0 or steps >= max_steps:
            return Contributions([part.slot for part in evidence.parts], values, logits, baseline, steps)
        steps *= 2


def _integrate(learner: Learner, evidence: Evidence, inputs: Inputs, steps: int) -> NDArray[np.float64]:
    """The mean of gradient × distance over the midpoints of equal steps: kinks of a model cost O(1 / steps)."""
    samples = len(inputs.flat)
    at_once = max(evidence.at_once // samples, 1)
    places = (np.arange(steps) + 0.5) / steps
    sums = np.zeros((samples, len(evidence.parts)))
    for first in range(0, steps, at_once):
        some = torch.from_numpy(places[first : first + at_once].astype(np.float32))
        repeated = _take(inputs, np.tile(np.arange(samples), len(some)))
        products = _by_slot(evidence, _products(learner, evidence, repeated, some.repeat_interleave(samples)))
        sums += products.reshape(len(some), samples, -1).sum(axis=0)
    return sums / steps


def _take(inputs: Inputs, rows: NDArray[np.int64]) -> Inputs:
    chosen = torch.from_numpy(rows)
    sequences = {name: Sequence(s.values[chosen], s.lengths[chosen]) for name, s in inputs.sequences.items()}
    return Inputs(inputs.spec, inputs.flat[chosen], sequences)


def _logits(learner: Learner, evidence: Evidence, inputs: Inputs) -> NDArray[np.float64]:
    scores = learner.score(inputs)
    chosen = scores if scores.ndim == 1 else scores[:, evidence.label]
    return chosen.astype(np.float64)


def _at(evidence: Evidence, inputs: Inputs, place: Tensor) -> Inputs:
    """Inputs at `place` [B] between the baseline (0) and themselves (1)."""
    baseline = evidence.baseline
    sequences = {name: Sequence(s.values * place[:, None, None], s.lengths) for name, s in inputs.sequences.items()}
    return Inputs(inputs.spec, baseline + (inputs.flat - baseline) * place[:, None], sequences)


def _products(learner: Learner, evidence: Evidence, inputs: Inputs, place: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Gradient at `place` × distance from the baseline: of the flat tensor, and summed of each sequence, [B]."""
    at = _at(evidence, inputs, place)
    at.flat.requires_grad_()
    for sequence in at.sequences.values():
        sequence.values.requires_grad_()
    if learner.model.training:
        learner.model.eval()
    with torch.enable_grad():
        logits = learner.model(at).float()
        chosen = logits if logits.ndim == 1 else logits[:, evidence.label]
        sources = [at.flat, *(sequence.values for sequence in at.sequences.values())]
        gradients = torch.autograd.grad(chosen.sum(), sources, allow_unused=True)
    flat = torch.zeros_like(at.flat) if gradients[0] is None else gradients[0]
    found = {}
    for (name, sequence), gradient in zip(inputs.sequences.items(), gradients[1:], strict=True):
        product = torch.zeros_like(sequence.values) if gradient is None else gradient * sequence.values
        found[name] = product.sum(dim=(1, 2))
    return (flat * (inputs.flat - evidence.baseline)).detach(), found


def _by_slot(evidence: Evidence, products: tuple[Tensor, dict[str, Tensor]]) -> NDArray[np.float64]:
    flat, sequences = products
    columns = [
        flat[:, list(part.columns)].double().sum(dim=1) if part.sequence is None else sequences[part.sequence].double()
        for part in evidence.parts
    ]
    return torch.stack(columns, dim=1).numpy()
