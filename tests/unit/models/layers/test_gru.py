"""The attentional GRU equals its formula step by step, and torch's GRU without attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elasticctr.models.layers.gru import GRU


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def states_by_formula(layer: GRU, x: np.ndarray, attention: np.ndarray) -> np.ndarray:
    """One sample's [T, in] → [T, width]."""
    width = layer.width
    w, b = layer.inputs.weight.detach().numpy(), layer.inputs.bias.detach().numpy()
    u = layer.states.weight.detach().numpy()
    part = [slice(i * width, (i + 1) * width) for i in range(3)]
    h, states = np.zeros(width), []
    for t, value in enumerate(x):
        reset = sigmoid(w[part[0]] @ value + b[part[0]] + u[part[0]] @ h)
        candidate = np.tanh(w[part[1]] @ value + b[part[1]] + reset * (u[part[1]] @ h))
        if layer.kind == "agru":
            update = np.full(width, attention[t])
        else:
            update = sigmoid(w[part[2]] @ value + b[part[2]] + u[part[2]] @ h)
            update = update * attention[t] if layer.kind == "augru" else update
        h = (1 - update) * h + update * candidate
        states.append(h)
    return np.stack(states)


@pytest.mark.parametrize("kind", ["gru", "agru", "augru"])
def test_it_is_the_formula_step_by_step(kind: Any) -> None:
    torch.manual_seed(4)
    layer = GRU(3, 4, kind).double()
    torch.nn.init.normal_(layer.inputs.bias)
    x, attention = torch.randn(5, 6, 3, dtype=torch.float64), torch.rand(5, 6, dtype=torch.float64)
    given = None if kind == "gru" else attention
    expected = [states_by_formula(layer, x[i].numpy(), attention[i].numpy()) for i in range(5)]
    np.testing.assert_allclose(layer(x, given).detach().numpy(), np.stack(expected), rtol=1e-10, atol=1e-12)


def test_it_is_torchs_gru_with_its_gates_renamed() -> None:
    torch.manual_seed(5)
    other: Any
    layer, other = GRU(3, 4).double(), torch.nn.GRU(3, 4, batch_first=True).double()
    with torch.no_grad():
        for mine, theirs in ((layer.inputs.weight, other.weight_ih_l0), (layer.states.weight, other.weight_hh_l0)):
            reset, candidate, update = mine.chunk(3)
            theirs.copy_(torch.cat([reset, -update, candidate]))  # theirs keeps the state where z is 1
        other.bias_ih_l0.zero_()
        other.bias_hh_l0.zero_()
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    torch.testing.assert_close(layer(x), other(x)[0])


@pytest.mark.parametrize("kind", ["agru", "augru"])
def test_no_attention_leaves_the_state(kind: Any) -> None:
    layer = GRU(3, 4, kind)
    x, attention = torch.randn(2, 6, 3), torch.rand(2, 6)
    attention[:, 3:] = 0
    states = layer(x, attention)
    assert torch.equal(states[:, 5], states[:, 2])
