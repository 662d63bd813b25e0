"""Attention to a target equals loops; padding has no part in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elasticctr.models.layers.target_attention import LocalActivation, TargetAttention, masked_softmax

LENGTHS = torch.tensor([0, 3, 5, 1])
MASK = torch.arange(5) < LENGTHS[:, None]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def score_by_formula(unit: Any, query: np.ndarray, key: np.ndarray) -> float:
    x = np.concatenate([query, key, query - key, query * key])
    layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in unit.linears]
    for weight, bias in layers[:-1]:
        x = np.maximum(weight @ x + bias, 0)
    return float((layers[-1][0] @ x + layers[-1][1])[0])


@pytest.mark.parametrize("hidden", [(), (7,), (6, 4)])
@pytest.mark.parametrize("softmax", [False, True])
def test_local_activation_is_a_loop_over_samples_and_values(hidden: tuple[int, ...], softmax: bool) -> None:
    torch.manual_seed(1)
    unit: Any = LocalActivation(3, hidden, softmax=softmax).double()
    for layer in unit.linears:
        torch.nn.init.normal_(layer.bias)
    query, keys = draw(4, 3), draw(4, 5, 3, seed=1)
    expected = np.zeros((4, 3))
    for i, length in enumerate(LENGTHS.tolist()):
        scores = [score_by_formula(unit, query[i].numpy(), keys[i, t].numpy()) for t in range(length)]
        if softmax and length:
            scores = list(np.exp(scores) / np.exp(scores).sum())
        for t in range(length):
            expected[i] += scores[t] * keys[i, t].numpy()
    keys.masked_fill_(~MASK.unsqueeze(2), 0.0)
    result = unit(query, keys, MASK).detach().numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-12)
    assert (result[0] == 0).all()


def test_local_activation_with_dice_ignores_padding_in_its_means() -> None:
    unit: Any = LocalActivation(3, (4,), "dice").double()
    query, keys = draw(4, 3), draw(4, 5, 3, seed=1).masked_fill(~MASK.unsqueeze(2), 0.0)
    short = unit(query, keys, MASK)
    kept = unit.activations[0].running_mean.clone()
    unit.activations[0].running_mean.zero_()
    wider = torch.cat([keys, keys.new_zeros(4, 3, 3)], dim=1)
    torch.testing.assert_close(unit(query, wider, torch.cat([MASK, MASK.new_zeros(4, 3)], dim=1)), short)
    torch.testing.assert_close(unit.activations[0].running_mean, kept)


def test_target_attention_is_a_loop_over_heads_and_values() -> None:
    torch.manual_seed(2)
    layer = TargetAttention(3, 4, heads=2, head_dim=5).double()
    torch.nn.init.normal_(layer.value.bias)
    query, keys = draw(4, 3), draw(4, 5, 4, seed=1)
    q, k, v = (part.detach().numpy() for part in (layer.query(query), layer.key(keys), layer.value(keys)))
    expected = np.zeros((4, 10))
    for i, length in enumerate(LENGTHS.tolist()):
        for head in (slice(0, 5), slice(5, 10)):
            scores = np.array([np.exp(q[i, head] @ k[i, t, head] / np.sqrt(5)) for t in range(length)])
            for t in range(length):
                expected[i, head] += scores[t] / scores.sum() * v[i, t, head]
    np.testing.assert_allclose(layer(query, keys, MASK).detach().numpy(), expected, rtol=1e-10, atol=1e-12)


def test_masked_softmax_of_nothing_is_zeros_with_zero_gradients() -> None:
    scores = draw(2, 3).requires_grad_()
    weights = masked_softmax(scores, torch.tensor([[False, False, False], [True, False, True]]))
    assert weights[0].eq(0).all()
    torch.testing.assert_close(weights[1], torch.tensor([1.0, 0.0, 1.0]) * weights[1])
    assert weights[1].sum().item() == pytest.approx(1.0)
    weights.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad[0].eq(0).all()
    assert scores.grad[1, 1] == 0
