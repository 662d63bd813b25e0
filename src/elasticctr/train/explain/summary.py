"""The whole explanation of a model's slots as one JSON-able value: explain.json, listed in docs/how-to/explain.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console

from elasticctr.data.dataset import Dataset
from elasticctr.obs.progress import Progress
from elasticctr.train.explain.contributions import FIRST_STEPS, TOLERANCE, contribute, gradient_importance
from elasticctr.train.explain.evidence import Evidence, collect
from elasticctr.train.explain.importance import permute
from elasticctr.train.explain.slots import find_dead, find_redundant
from elasticctr.train.learner import Learner
from elasticctr.train.metrics.metrics import Metrics

COMPARED = 1000  # samples whose contributions tell how alike two slots are


def explain(
    learner: Learner,
    dataset: Dataset,
    *,
    samples: int = 20_000,
    repeats: int = 3,
    predictions: int = 5,
    label: int = 0,
    seed: int = 0,
    quiet: bool = False,
) -> dict[str, Any]:
    """Importance of every slot, dead and redundant ones, and contributions to the first `predictions` predictions."""
    evidence = collect(learner, dataset, samples=samples, label=label)
    work = len(evidence.parts) * repeats * len(evidence)
    with Progress("explaining", total=work, console=Console(quiet=True) if quiet else None) as progress:
        importance = permute(learner, evidence, repeats=repeats, seed=seed, advance=progress.advance)
    gradients = gradient_importance(learner, evidence)
    rough = contribute(learner, evidence, COMPARED, FIRST_STEPS)
    dead = find_dead(evidence, importance)
    redundant = find_redundant(evidence, rough.values, dead, seed=seed)
    slots = [
        {
            "slot": one.slot,
            "auc_loss": one.auc_loss.as_dict(),
            "logloss_gain": one.logloss_gain.as_dict(),
            "gradient": float(gradient),
            "dead": dead.get(one.slot),
        }
        for one, gradient in zip(importance, gradients, strict=True)
    ]
    slots.sort(key=lambda slot: -_rank(slot))
    return {
        "samples": len(evidence),
        "repeats": repeats,
        "seed": seed,
        "label": dataset.schema.label[label],
        "metrics": _metrics(learner, evidence),
        "slots": slots,
        "redundant": [one.as_dict() for one in redundant],
        "tolerance": TOLERANCE,
        "predictions": _predictions(learner, evidence, predictions),
    }


def _rank(slot: dict[str, Any]) -> float:
    loss = slot["logloss_gain"]["mean"]
    return -1.0 if loss is None else float(loss)


def _metrics(learner: Learner, evidence: Evidence) -> dict[str, Any]:
    metrics = Metrics(names=("samples", "auc", "logloss"))
    metrics.update(evidence.score(learner, evidence.inputs), evidence.labels, evidence.weights)
    return metrics.as_dict()


def _predictions(learner: Learner, evidence: Evidence, count: int) -> list[dict[str, Any]]:
    if count == 0:
        return []
    contributions = contribute(learner, evidence, count)
    found = []
    for i in range(len(contributions.logits)):
        each = dict(zip(contributions.slots, contributions.values[i].tolist(), strict=True))
        found.append(
            {
                "label": float(evidence.labels[i]),
                "logit": float(contributions.logits[i]),
                "score": float(1 / (1 + np.exp(-contributions.logits[i]))),
                "baseline": float(contributions.baseline[i]),
                "residual": float(contributions.residual[i]),
                "contributions": dict(sorted(each.items(), key=lambda item: -abs(item[1]))),
            }
        )
    return found
