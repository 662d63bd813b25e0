"""Losses against float64 formulas written per sample, with the gradient as its own closed form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from elasticctr.config import parse_settings
from elasticctr.errors import ConfigError
from elasticctr.models import Inputs, InputSpec, Loss, LossSettings, Sequence, SequenceSpec

LOGITS = [-3.0, -0.5, 0.0, 0.25, 2.0, 6.0]
LABELS = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0]
WEIGHTS = [1.0, 0.5, 2.0, 0.0, 3.0, 1.0]


def reference(settings: LossSettings, z: float, y: float) -> tuple[float, float]:
    """Loss of one sample and its derivative by the logit."""
    y = y * (1 - settings.label_smoothing) + 0.5 * settings.label_smoothing
    log_p, log_q = -float(np.logaddexp(0, -z)), -float(np.logaddexp(0, z))
    p, q = math.exp(log_p), math.exp(log_q)
    w, g = settings.positive_weight, settings.gamma if settings.kind == "focal" else 0.0
    loss = -w * y * q**g * log_p - (1 - y) * p**g * log_q
    # d log_p / dz = q, d log_q / dz = -p, d q^g / dz = -g p q^g, d p^g / dz = g q p^g
    gradient = -w * y * (q**g * q - g * p * q**g * log_p) - (1 - y) * (g * q * p**g * log_q - p**g * p)
    return loss, gradient


@pytest.mark.parametrize("kind", ["bce", "focal"])
@pytest.mark.parametrize("positive_weight", [1.0, 3.5])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_and_gradient(
    kind: str, positive_weight: float, label_smoothing: float, weights: list[float] | None, dtype: torch.dtype
) -> None:
    settings = LossSettings(kind=kind, positive_weight=positive_weight, label_smoothing=label_smoothing, gamma=1.5)
    logits = torch.tensor(LOGITS, dtype=dtype, requires_grad=True)
    given = None if weights is None else torch.tensor(weights)
    loss = Loss(settings)(logits, torch.tensor(LABELS), given)
    loss.backward()
    pairs = [reference(settings, z, y) for z, y in zip(LOGITS, LABELS, strict=True)]
    scale = [w / len(LOGITS) for w in (weights or [1.0] * len(LOGITS))]
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    expected = sum(s * value for s, (value, _) in zip(scale, pairs, strict=True))
    assert loss.item() == pytest.approx(expected, rel=tolerance)
    gradients = [s * slope for s, (_, slope) in zip(scale, pairs, strict=True)]
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy(), gradients, rtol=4 * tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["bce", "focal"])
@pytest.mark.parametrize("z", [-1e30, -1e4, -100.0, 100.0, 1e4, 1e30])
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_huge_logits(kind: str, z: float, y: float) -> None:
    logits = torch.tensor([z], requires_grad=True)
    loss = Loss(LossSettings(kind=kind))(logits, torch.tensor([y]))
    loss.backward()
    is_wrong = (z > 0) != (y > 0)
    assert loss.item() == pytest.approx(abs(z) if is_wrong else 0.0, rel=1e-6, abs=1e-30)
    assert logits.grad is not None
    assert logits.grad.item() == pytest.approx(math.copysign(1.0, z) if is_wrong else 0.0, abs=1e-30)


def test_focal_with_gamma_0_is_cross_entropy() -> None:
    logits, labels = torch.tensor(LOGITS), torch.tensor(LABELS)
    focal = Loss(LossSettings(kind="focal", gamma=0.0))(logits, labels)
    assert focal.item() == pytest.approx(Loss(LossSettings())(logits, labels).item(), rel=1e-6)


def test_labels_as_a_column_and_several_labels() -> None:
    loss = Loss(LossSettings())
    logits, labels = torch.tensor(LOGITS), torch.tensor(LABELS)
    assert loss(logits, labels[:, None]) == loss(logits, labels)
    weights = torch.tensor([1.0, 2.0, 0.0])
    two = loss(logits.reshape(3, 2), labels.reshape(3, 2), weights)
    assert two.item() == pytest.approx(loss(logits, labels, weights.repeat_interleave(2)).item(), rel=1e-6)


def test_bfloat16_logits_are_computed_in_float32() -> None:
    logits = torch.tensor(LOGITS, dtype=torch.bfloat16)
    loss = Loss(LossSettings(kind="focal"))(logits, torch.tensor(LABELS))
    assert loss.dtype == torch.float32
    assert loss == Loss(LossSettings(kind="focal"))(logits.float(), torch.tensor(LABELS))


def test_embedding_l2() -> None:
    spec = InputSpec(("a", "b"), (2, 2), dense_dim=1, linear=True, sequences=(SequenceSpec("h", 2, 3),))
    flat = torch.arange(14, dtype=torch.float32).reshape(2, 7).requires_grad_()
    history = Sequence(torch.ones(2, 3, 2), torch.tensor([3, 3]))
    penalty = Loss(LossSettings(embedding_l2=0.5)).penalty(Inputs(spec, flat, {"h": history}))
    squares = sum(v * v for v in (2, 3, 4, 5, 9, 10, 11, 12)) + 12
    assert penalty is not None
    assert penalty.item() == pytest.approx(0.5 * squares / 2)
    penalty.backward()
    assert flat.grad is not None
    assert flat.grad[0].tolist() == [0, 0, 1.0, 1.5, 2.0, 2.5, 0]
    assert Loss(LossSettings()).penalty(Inputs(spec, flat, {"h": history})) is None


@pytest.mark.parametrize("bad", [{"label_smoothing": 1.0}, {"positive_weight": 0}, {"gamma": -1}, {"kind": "hinge"}])
def test_bad_settings(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        parse_settings(LossSettings, bad, "job.yaml")


@pytest.mark.parametrize("n", [0, 1, 7, 4096])
def test_the_native_gradient_is_autograds(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    logits = (torch.randn(n, generator=generator) * 30).requires_grad_()
    labels, weights = torch.rand(n, 2, generator=generator)[:, 1], torch.rand(n, generator=generator)
    native = Loss(LossSettings()).backward(logits, labels, weights)
    reference = logits.detach().double().requires_grad_()
    loss = Loss(LossSettings())(reference, labels.double(), weights.double())
    loss.backward()
    if n:
        assert native == pytest.approx(float(loss), rel=1e-6)
    assert logits.grad is not None and reference.grad is not None
    torch.testing.assert_close(logits.grad.double(), reference.grad, rtol=2e-6, atol=1e-7 / max(n, 1))


@pytest.mark.parametrize(
    ("settings", "factors"),
    [
        ({}, [1.0, 1.0]),
        ({"task_weights": {"buy": 0.2}}, [1.0, 0.2]),
        ({"task_weights": "uncertainty"}, [math.exp(-0.4), math.exp(0.3)]),
        ({"negative_rate": 0.25}, [1.0, 1.0]),
    ],
)
def test_auxiliary_losses_count_as_their_samples_and_labels_do(settings: dict[str, Any], factors: list[float]) -> None:
    loss = Loss(LossSettings(**settings), ("click", "buy")).double()
    if loss.log_variances is not None:
        loss.log_variances.data = torch.tensor([0.4, -0.3], dtype=torch.float64)
    w = torch.tensor([[0.1, 0.7], [1.5, -0.2], [0.0, 2.0]], dtype=torch.float64, requires_grad=True)
    logits = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    labels, weights = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]), torch.tensor([1.0, 0.5, 3.0])
    reported = loss.backward(logits, labels, weights, auxiliary=w.square())
    assert reported == pytest.approx(float(loss(logits, labels, weights)), rel=1e-12)
    for i in range(3):
        for k in range(2):
            kept = settings.get("negative_rate", 1.0) if k == 1 and labels[i, 0] == 0 else 1.0
            expected = 2 * float(w[i, k]) * factors[k] * float(weights[i]) / kept / 6
            assert w.grad is not None
            assert float(w.grad[i, k]) == pytest.approx(expected, rel=1e-6)
    assert logits.grad is not None
    gradient = logits.grad.clone()
    logits.grad = None
    loss.backward(logits, labels, weights)
    torch.testing.assert_close(logits.grad, gradient)


def test_auxiliary_losses_of_samples_count_once_whatever_the_labels() -> None:
    losses, weights = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 0.5, 2.0])
    two = Loss(LossSettings(task_weights={"buy": 0.2}), ("click", "buy"))
    assert float(two.of_auxiliary(losses, torch.zeros(3, 2), weights)) == pytest.approx(10 / 3)
    one = Loss(LossSettings(task_weights={"buy": 0.2}), ("buy",))
    assert float(one.of_auxiliary(losses, torch.zeros(3), weights)) == pytest.approx(2 / 3)
