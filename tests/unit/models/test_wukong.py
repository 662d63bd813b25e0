"""Wukong equals explicit loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tests.unit.models.conftest import Kit

from elasticctr.models import create

SMALL = {"dim": 2, "hidden": [4], "layers": 2, "fm_embeddings": 2, "linear_embeddings": 3, "rank": 2, "fm_hidden": [5]}


def norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def test_forward_equals_explicit_loops(kit: Kit) -> None:
    settings = SMALL | {"dense_embeddings": 2}
    spec = kit.spec_for("wukong", settings, sequences=True)
    model = kit.randomize(create("wukong", spec, settings))
    inputs = kit.random_inputs(spec, batch=3, dtype=torch.float64)
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]
    dense = kit.numpy_mlp(model.dense, inputs.flat.numpy()[:, 6:])
    expected = []
    for b, row in enumerate(inputs.flat.numpy()):
        x = np.concatenate([row[:6], *(m[b] for m in means), dense[b]]).reshape(7, 2)
        for layer in model.layers:
            y, w, shortcut = np.split(layer.mix.weight.detach().numpy(), [2, 5])
            scale, shift = layer.machine_norm.weight.detach().numpy(), layer.machine_norm.bias.detach().numpy()
            flat = norm((x @ (x.T @ y.T)).reshape(-1)) * scale + shift
            found = kit.numpy_mlp(layer.machine, flat[None])[0].reshape(2, 2)
            out = np.concatenate([found, w @ x]) + (shortcut @ x if layer.has_shortcut else x)
            scale, shift = layer.norm.weight.detach().numpy(), layer.norm.bias.detach().numpy()
            x = np.stack([norm(v) * scale + shift for v in out])
        expected.append(kit.numpy_mlp(model.deep, x.reshape(1, -1))[0, 0])
    assert [layer.has_shortcut for layer in model.layers] == [True, False]
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-7)
    assert kit.check_gradients(model, inputs)


def test_embeddings_of_dense_floats_start_small(kit: Kit) -> None:
    spec = kit.spec_for("wukong", {"dim": 16})
    model: Any = create("wukong", spec, {"dim": 16})
    first, last = (layer.weight.std().item() * layer.in_features**0.5 for layer in model.dense.layers())
    assert 0.7 < first < 1.3 and 0.08 < last < 0.12


def test_without_dense_floats_nothing_is_made_of_them(kit: Kit) -> None:
    spec = kit.spec_for("wukong", SMALL, dense_dim=0)
    model: Any = create("wukong", spec, SMALL)
    assert model.dense is None
    assert model(kit.random_inputs(spec)).shape == (5,)
