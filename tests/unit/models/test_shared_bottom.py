"""The shared-bottom model equals its formula; a label without loss moves no other head."""

from __future__ import annotations

import numpy as np
import torch
from tests.unit.models.conftest import Kit

from elasticctr.models import create

SETTINGS = {"dim": 2, "hidden": [3, 2], "head_hidden": [2]}


def test_forward_and_gradients(kit: Kit) -> None:
    spec = kit.spec_for("shared_bottom", SETTINGS, slots=("ad", "user"), dense_dim=1, labels=2)
    model = kit.randomize(create("shared_bottom", spec, SETTINGS))
    inputs = kit.random_inputs(spec, 4, dtype=torch.float64)
    shared = np.maximum(kit.numpy_mlp(model.bottom, inputs.deep.numpy()), 0)
    expected = np.concatenate([kit.numpy_mlp(tower, shared) for tower in model.heads.towers], axis=1)
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-12)
    assert kit.check_gradients(model, kit.random_inputs(spec, 2, dtype=torch.float64))


def test_a_label_without_loss_leaves_the_other_head_alone(kit: Kit) -> None:
    spec = kit.spec_for("shared_bottom", SETTINGS, labels=2)
    model = kit.randomize(create("shared_bottom", spec, SETTINGS))
    model(kit.random_inputs(spec, 4, dtype=torch.float64))[:, 0].sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in model.heads.towers[0].parameters())
    assert all(p.grad is None or p.grad.abs().sum() == 0 for p in model.heads.towers[1].parameters())
