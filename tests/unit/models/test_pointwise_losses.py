"""Losses for logs that differ from the events: sampled negatives, late positives. Each has its optimum, by the
definition of the log, where scores are right; and each is checked against its formula in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from elasticctr.config import parse_settings
from elasticctr.errors import ConfigError
from elasticctr.models import Loss, LossSettings

LOGITS = [-3.0, -0.5, 0.0, 0.25, 2.0, 6.0]
LABELS = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0]
WEIGHTS = [1.0, 0.5, 2.0, 0.0, 3.0, 1.0]


def log_p(z: float) -> float:
    return -float(np.logaddexp(0, -z))


def sampled(z: float, y: float) -> float:
    odds = math.exp(z) / 0.1
    p = odds / (1 + odds)
    return -math.log(p if y else 1 - p)


def fnw(z: float, y: float) -> float:
    p = math.exp(log_p(z))
    return -(1 + p) * log_p(z) if y else -(1 - p) * (1 + p) * log_p(-z)


def fnc(z: float, y: float) -> float:
    p = math.exp(log_p(z))
    b = p / (1 + p)
    return -math.log(b if y else 1 - b)


def fnc_sampled(z: float, y: float) -> float:
    p = math.exp(log_p(z))
    b = p / (p + 0.1)
    return -math.log(b if y else 1 - b)


CASES = [
    ({"negative_rate": 0.1}, sampled),
    ({"delayed": "fnw"}, fnw),
    ({"delayed": "fnc"}, fnc),
    ({"delayed": "fnc", "negative_rate": 0.1}, fnc_sampled),
]


@pytest.mark.parametrize(("settings", "formula"), CASES)
def test_loss_against_its_formula(settings: dict[str, Any], formula: Callable[[float, float], float]) -> None:
    loss = Loss(LossSettings(**settings))
    assert not loss.is_plain
    logits = torch.tensor(LOGITS, dtype=torch.float64)
    value = loss(logits, torch.tensor(LABELS), torch.tensor(WEIGHTS))
    pairs = zip(LOGITS, LABELS, WEIGHTS, strict=True)
    assert value.item() == pytest.approx(sum(w * formula(z, y) for z, y, w in pairs) / 6, rel=1e-12)


@pytest.mark.parametrize(
    "settings", [{"negative_rate": 0.1}, {"delayed": "fnc"}, {"delayed": "fnc", "negative_rate": 0.5}]
)
def test_gradient(settings: dict[str, Any]) -> None:
    loss = Loss(LossSettings(**settings))
    labels = torch.tensor(LABELS).double()
    logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), logits)


def test_no_gradient_goes_through_the_weights_of_fnw() -> None:
    logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    Loss(LossSettings(delayed="fnw"))(logits, torch.tensor(LABELS)).backward()
    assert logits.grad is not None
    for z, y, slope in zip(LOGITS, LABELS, logits.grad.tolist(), strict=True):
        p = 1 / (1 + math.exp(-z))
        # d(-log p)/dz = -(1 - p), d(-log(1 - p))/dz = p
        expected = -(1 + p) * (1 - p) if y else (1 - p) * (1 + p) * p
        assert slope == pytest.approx(expected / 6, rel=1e-12)


@pytest.mark.parametrize(("settings", "_"), CASES)
@pytest.mark.parametrize("z", [-1e4, 1e4])
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_huge_logits(settings: dict[str, Any], _: object, z: float, y: float) -> None:
    logits = torch.tensor([z], requires_grad=True)
    value = Loss(LossSettings(**settings))(logits, torch.tensor([y]))
    value.backward()
    assert math.isfinite(value.item())
    assert logits.grad is not None and logits.grad.isfinite().all()


@pytest.mark.parametrize("p", [0.02, 0.3])
@pytest.mark.parametrize(
    ("settings", "positives", "negatives"),
    [
        ({"negative_rate": 0.1}, lambda p: p, lambda p: 0.1 * (1 - p)),
        # Every sample comes as a negative first, those that become positive once more.
        ({"delayed": "fnw"}, lambda p: p, lambda p: 1.0),
        ({"delayed": "fnc"}, lambda p: p, lambda p: 1.0),
        ({"delayed": "fnc", "negative_rate": 0.1}, lambda p: p, lambda p: 0.1),
    ],
)
def test_the_scores_learned_from_such_a_log_are_the_true_rates(
    settings: dict[str, Any], positives: Callable[[float], float], negatives: Callable[[float], float], p: float
) -> None:
    loss = Loss(LossSettings(**settings))
    weights = torch.tensor([positives(p), negatives(p)], dtype=torch.float64)
    low, high = -20.0, 20.0
    for _ in range(40):  # to where the gradient is 0
        logit = torch.tensor((low + high) / 2, dtype=torch.float64, requires_grad=True)
        loss(logit.expand(2), torch.tensor([1.0, 0.0]), weights).backward()
        assert logit.grad is not None
        low, high = (logit.item(), high) if logit.grad < 0 else (low, logit.item())
    assert torch.sigmoid(logit).item() == pytest.approx(p, rel=1e-6)


def test_thinned_out_negatives_of_the_first_label_weigh_more_for_the_others() -> None:
    logits, labels = torch.tensor([[0.5, -1.0], [1.0, 2.0]]), torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    value = Loss(LossSettings(negative_rate=0.25), ("click", "buy"))(logits, labels)
    first = (math.log(1 + math.exp(0.5) * 4) + math.log(1 + math.exp(-1.0) / 4)) / 2
    second = (4 * math.log(1 + math.exp(-1.0)) + math.log(1 + math.exp(2.0))) / 2
    assert value.item() == pytest.approx((first + second) / 2, rel=1e-6)


def test_the_last_label_is_late_unless_another_is_named() -> None:
    logits, labels = torch.tensor([[0.5, -1.0], [1.0, 2.0]]), torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    plain = [fnc, lambda z, y: -log_p(z if y else -z)]
    for name, formulas in (("click", plain), ("buy", plain[::-1]), (None, plain[::-1])):
        loss = Loss(LossSettings(delayed="fnc", delayed_label=name), ("click", "buy"))
        each = [f(float(logits[i, k]), float(labels[i, k])) for k, f in enumerate(formulas) for i in range(2)]
        assert loss(logits, labels).item() == pytest.approx(sum(each) / 4, rel=1e-6)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"negative_rate": 0.0}, "negative_rate"),
        ({"delayed": "fnw", "negative_rate": 0.5}, "fnc"),
        ({"delayed": "fnc", "kind": "focal"}, "kind: bce"),
    ],
)
def test_bad_settings(bad: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        parse_settings(LossSettings, bad, "job.yaml")
