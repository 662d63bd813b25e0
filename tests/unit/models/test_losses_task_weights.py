"""Weights of several losses: fixed, or learned by uncertainty."""

from __future__ import annotations

import math

import pytest
import torch

from elasticctr.config import parse_settings
from elasticctr.errors import ConfigError
from elasticctr.models import Loss, LossSettings

LOGITS = torch.tensor([[0.5, -1.0], [1.0, 2.0], [-2.0, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
NAMES = ("click", "buy")


def of_label(k: int) -> float:
    return Loss(LossSettings())(LOGITS[:, k], LABELS[:, k]).item()


def test_fixed_weights() -> None:
    assert Loss(LossSettings(), NAMES)(LOGITS, LABELS).item() == pytest.approx((of_label(0) + of_label(1)) / 2)
    loss = Loss(LossSettings(task_weights={"buy": 0.2}), NAMES)
    assert loss(LOGITS, LABELS).item() == pytest.approx((of_label(0) + 0.2 * of_label(1)) / 2)
    assert not loss.is_plain
    assert list(loss.parameters()) == []


def test_weights_by_uncertainty() -> None:
    loss = Loss(LossSettings(task_weights="uncertainty"), NAMES).double()
    assert loss.log_variances is not None
    with torch.no_grad():
        loss.log_variances.copy_(torch.tensor([0.7, -1.2], dtype=torch.float64))
    expected = (math.exp(-0.7) * of_label(0) + 0.35 + math.exp(1.2) * of_label(1) - 0.6) / 2
    assert loss(LOGITS, LABELS).item() == pytest.approx(expected, rel=1e-12)
    logits = LOGITS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z, _: loss(z, LABELS), (logits, loss.log_variances))


def test_the_variances_learned_are_twice_the_losses() -> None:
    loss = Loss(LossSettings(task_weights="uncertainty"), NAMES).double()
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.5)
    for _ in range(300):
        optimizer.zero_grad()
        loss(LOGITS, LABELS).backward()
        optimizer.step()
    expected = [math.log(2 * of_label(k)) for k in range(2)]
    assert loss.log_variances is not None
    assert loss.log_variances.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("z", [-1e4, 1e4])
def test_huge_logits(z: float) -> None:
    logits = torch.full((2, 2), z, requires_grad=True)
    loss = Loss(LossSettings(task_weights="uncertainty"), NAMES)
    loss(logits, torch.tensor([[0.0, 1.0], [1.0, 0.0]])).backward()
    assert logits.grad is not None and logits.grad.isfinite().all()
    assert loss.log_variances is not None and loss.log_variances.grad is not None
    assert loss.log_variances.grad.isfinite().all()


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="task_weights"):
        parse_settings(LossSettings, {"task_weights": {"click": -1.0}}, "job.yaml")
    with pytest.raises(ConfigError, match="not all"):
        parse_settings(LossSettings, {"task_weights": {"click": 0.0}}, "job.yaml")
    for bad in ({"task_weights": {"like": 1.0}}, {"delayed_label": "like"}):
        with pytest.raises(ValueError, match="'like' is not a label of the schema; it has click, buy"):
            LossSettings(**bad).check_names(NAMES, [])
    with pytest.raises(ValueError, match="'session' is not a sparse slot"):
        LossSettings(group="session").check_names(NAMES, ["user"])
