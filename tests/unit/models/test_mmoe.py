"""MMoE equals its formula in values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import create

SETTINGS = {"dim": 2, "hidden": [3], "head_hidden": [2], "experts": 2}


def test_forward_and_gradients(kit: Kit) -> None:
    spec = kit.spec_for("mmoe", SETTINGS, slots=("ad", "user"), dense_dim=1, labels=2)
    model = kit.randomize(create("mmoe", spec, SETTINGS))
    inputs = kit.random_inputs(spec, 4, dtype=torch.float64)
    for i, x in enumerate(inputs.deep.numpy()):
        experts = [np.maximum(kit.numpy_mlp(tower, x[None]), 0)[0] for tower in model.experts.towers]
        for label in range(2):
            powers = [np.exp(row @ x) for row in model.gates[label].weight.detach().numpy()]
            mixed = sum(power / sum(powers) * expert for power, expert in zip(powers, experts, strict=True))
            expected = kit.numpy_mlp(model.heads.towers[label], mixed[None])[0, 0]
            assert model(inputs)[i, label].item() == pytest.approx(expected, rel=1e-10)
    assert kit.check_gradients(model, kit.random_inputs(spec, 2, dtype=torch.float64))


def test_bad_settings(kit: Kit) -> None:
    with pytest.raises(ConfigError, match="experts"):
        create("mmoe", kit.spec_for("mmoe", {}), {"experts": 0})
    with pytest.raises(ConfigError, match="hidden"):
        create("mmoe", kit.spec_for("mmoe", {}), {"hidden": []})
