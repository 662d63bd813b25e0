"""GDCN equals explicit loops and learns XOR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.models import create


def cross_by_loops(model: Any, x0: np.ndarray) -> np.ndarray:
    x = x0
    for cross, gate in zip(model.cross.cross, model.cross.gate, strict=True):
        w, b, g = cross.weight.detach().numpy(), cross.bias.detach().numpy(), gate.weight.detach().numpy()
        after = np.empty_like(x)
        for s in range(x.shape[0]):
            for i in range(x.shape[1]):
                crossed = x0[s, i] * (sum(w[i, j] * x[s, j] for j in range(x.shape[1])) + b[i])
                opened = 1 / (1 + np.exp(-sum(g[i, j] * x[s, j] for j in range(x.shape[1]))))
                after[s, i] = crossed * opened + x[s, i]
        x = after
    return x


@pytest.mark.parametrize("structure", ["stacked", "parallel"])
def test_forward_equals_explicit_loops(kit: Kit, structure: str) -> None:
    settings = {"dim": 2, "hidden": [4, 3], "structure": structure, "cross_layers": 2}
    spec = kit.spec_for("gdcn", settings, dims=(1, 3, 2), sequences=True)
    model = kit.randomize(create("gdcn", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    x0 = np.concatenate([inputs.flat.numpy(), *(kit.numpy_mean(s) for s in inputs.sequences.values())], axis=1)
    crossed = cross_by_loops(model, x0)
    if structure == "stacked":
        expected = kit.numpy_mlp(model.deep, crossed)
    else:
        both = np.concatenate([crossed, np.maximum(kit.numpy_mlp(model.deep, x0), 0)], axis=1)
        expected = both @ model.head.weight.detach().numpy().T + model.head.bias.detach().numpy()
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected[:, 0], rtol=1e-9)
    assert kit.check_gradients(model, inputs)


def test_crosses_alone_learn_xor(kit: Kit) -> None:
    assert kit.learn_xor("gdcn", {"dim": 4, "cross_layers": 2, "hidden": []}).all()
