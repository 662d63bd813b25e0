"""Experts and gates equal their towers side by side."""

from __future__ import annotations

import numpy as np
import torch

from elasticctr.models.layers.experts import ExpertGate, Experts, Heads
from elasticctr.models.layers.mlp import MLP


def test_experts_are_their_towers_side_by_side() -> None:
    experts = Experts(3, lambda: MLP(4, (5,), None))
    x = torch.randn(6, 4)
    out = experts(x)
    assert out.shape == (6, 3, 5)
    for number, tower in enumerate(experts.towers):
        torch.testing.assert_close(out[:, number], tower(x))


def test_a_gate_starts_with_equal_shares_and_weighs_by_its_softmax() -> None:
    gate = ExpertGate(4, 3).double()
    x, experts = torch.randn(6, 4).double(), torch.randn(6, 3, 5).double()
    torch.testing.assert_close(gate(x, experts), experts.mean(dim=1))
    with torch.no_grad():
        gate.weight.normal_()
    weight = gate.weight.detach().numpy()
    for i in range(6):
        powers = [np.exp(weight[e] @ x[i].numpy()) for e in range(3)]
        mixed = sum(power / sum(powers) * experts[i, e].numpy() for e, power in enumerate(powers))
        np.testing.assert_allclose(gate(x, experts)[i].detach().numpy(), mixed, rtol=1e-12)


def test_gates_of_huge_features_stay_finite() -> None:
    gate = ExpertGate(2, 3)
    with torch.no_grad():
        gate.weight.copy_(torch.tensor([[1e4, 0.0], [0.0, 1e4], [-1e4, -1e4]]))
    assert gate(torch.full((1, 2), 1e4), torch.ones(1, 3, 2)).tolist() == [[1.0, 1.0]]


def test_heads_read_what_is_given_to_each() -> None:
    heads = Heads(2, lambda: MLP(3, (), 1))
    each = [torch.randn(4, 3), torch.randn(4, 3)]
    logits = heads(each)
    assert logits.shape == (4, 2)
    for label, tower in enumerate(heads.towers):
        torch.testing.assert_close(logits[:, label], tower(each[label]).squeeze(1))
