"""PLE against loops over samples, labels and experts, written from the paper's equations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.models import create

SETTINGS = {"dim": 2, "hidden": [2], "head_hidden": [], "shared_experts": 2, "label_experts": 1}


def mix(gate: torch.nn.Linear, x: np.ndarray, experts: list[np.ndarray]) -> np.ndarray:
    powers = [np.exp(row @ x) for row in gate.weight.detach().numpy()]
    return sum(power / sum(powers) * expert for power, expert in zip(powers, experts, strict=True))


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_forward_and_gradients(kit: Kit, levels: int) -> None:
    settings = {**SETTINGS, "levels": levels}
    spec = kit.spec_for("ple", settings, slots=("ad",), dense_dim=1, labels=2)
    model = kit.randomize(create("ple", spec, settings))
    inputs = kit.random_inputs(spec, 3, dtype=torch.float64)

    def expert(tower: torch.nn.Module, x: np.ndarray) -> np.ndarray:
        return np.maximum(kit.numpy_mlp(tower, x[None])[0], 0)

    for i, features in enumerate(inputs.deep.numpy()):
        shared, each = features, [features, features]
        for number, level in enumerate(model.levels):
            own = [[expert(tower, each[k]) for tower in level.own[k].towers] for k in range(2)]
            common = [expert(tower, shared) for tower in level.shared.towers]
            each = [mix(level.gates[k], each[k], own[k] + common) for k in range(2)]
            if number + 1 < levels:
                shared = mix(level.shared_gate, shared, own[0] + own[1] + common)
        expected = [kit.numpy_mlp(model.heads.towers[k], each[k][None])[0, 0] for k in range(2)]
        np.testing.assert_allclose(model(inputs)[i].detach().numpy(), expected, rtol=1e-10)
    if levels == 2:
        assert kit.check_gradients(model, kit.random_inputs(spec, 2, dtype=torch.float64))


def test_a_labels_experts_do_not_learn_from_the_other_label(kit: Kit) -> None:
    settings = {**SETTINGS, "levels": 1}
    spec = kit.spec_for("ple", settings, labels=2)
    model = kit.randomize(create("ple", spec, settings))
    model(kit.random_inputs(spec, 8, dtype=torch.float64))[:, 0].sum().backward()
    own, other = model.levels[0].own
    assert sum(p.grad.abs().sum() for p in own.parameters()) > 0
    assert all(p.grad is None or p.grad.abs().sum() == 0 for p in other.parameters())
