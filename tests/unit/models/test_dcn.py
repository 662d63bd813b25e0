"""DCN equals explicit loops and learns XOR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.models import create


def cross_by_loops(model: Any, x0: np.ndarray) -> np.ndarray:
    x = x0.copy()
    for weight, bias in zip(model.cross.weight.detach().numpy(), model.cross.bias.detach().numpy(), strict=True):
        after = np.empty_like(x)
        for b in range(len(x)):
            inner = sum(weight[j] * x[b, j] for j in range(x.shape[1]))
            for i in range(x.shape[1]):
                after[b, i] = x0[b, i] * inner + bias[i] + x[b, i]
        x = after
    return x


@pytest.mark.parametrize("structure", ["stacked", "parallel"])
@pytest.mark.parametrize("layers", [1, 3])
def test_forward_equals_explicit_loops(kit: Kit, structure: str, layers: int) -> None:
    settings = {"dim": 2, "hidden": [5, 3], "structure": structure, "cross_layers": layers}
    spec = kit.spec_for("dcn", settings, dims=(1, 3, 2), sequences=True)
    model = kit.randomize(create("dcn", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    x0 = np.concatenate([inputs.flat.numpy(), *(kit.numpy_mean(s) for s in inputs.sequences.values())], axis=1)
    crossed = cross_by_loops(model, x0)
    if structure == "stacked":
        expected = kit.numpy_mlp(model.deep, crossed)[:, 0]
    else:
        both = np.concatenate([crossed, np.maximum(kit.numpy_mlp(model.deep, x0), 0)], axis=1)
        expected = (both @ model.head.weight.detach().numpy().T + model.head.bias.detach().numpy())[:, 0]
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-9)
    assert kit.check_gradients(model, inputs)


def test_crosses_alone_have_one_vector_each(kit: Kit) -> None:
    settings = {"hidden": [], "cross_layers": 4}
    spec = kit.spec_for("dcn", settings)
    width = 3 * 9 + 2
    assert sum(p.numel() for p in create("dcn", spec, settings).parameters()) == 4 * 2 * width + width + 1


def test_learns_xor(kit: Kit) -> None:
    assert kit.learn_xor("dcn", {"dim": 4, "hidden": [8]}).all()
