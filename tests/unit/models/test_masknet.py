"""MaskNet equals NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import create


def norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def block(kit: Kit, layer: Any, features: np.ndarray, x: np.ndarray) -> np.ndarray:
    hidden = (kit.numpy_mlp(layer.mask, features) * x) @ layer.hidden.weight.detach().numpy().T
    scale, shift = layer.norm.weight.detach().numpy(), layer.norm.bias.detach().numpy()
    return np.maximum(norm(hidden) * scale + shift, 0)


@pytest.mark.parametrize("structure", ["parallel", "serial"])
def test_forward_equals_numpy(kit: Kit, structure: str) -> None:
    settings = {"dim": 3, "hidden": [5, 4], "structure": structure, "blocks": 2, "block_dim": 3, "reduction": 1.5}
    spec = kit.spec_for("masknet", settings, sequences=True)
    model = kit.randomize(create("masknet", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]
    flat = inputs.flat.numpy()
    features = np.concatenate([flat, *means], axis=1)
    scale, shift = model.norm.weight.detach().numpy(), model.norm.bias.detach().numpy()
    fields = np.concatenate([flat[:, :9], *means], axis=1)
    normed = norm(fields.reshape(-1, 5, 3)).reshape(-1, 15) * scale + shift
    x = np.concatenate([normed[:, :9], flat[:, 9:], normed[:, 9:]], axis=1)
    if structure == "serial":
        for layer in model.blocks:
            x = block(kit, layer, features, x)
        assert [layer.hidden.out_features for layer in model.blocks] == [5, 4]
        expected = x @ model.head.weight.detach().numpy().T + model.head.bias.detach().numpy()
    else:
        expected = kit.numpy_mlp(model.head, np.concatenate([block(kit, m, features, x) for m in model.blocks], axis=1))
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected[:, 0], rtol=1e-8)
    assert kit.check_gradients(model, inputs)


def test_widths_may_differ_without_the_norm_of_embeddings(kit: Kit) -> None:
    spec = kit.spec_for("masknet", dims=(1, 3, 2))
    with pytest.raises(ConfigError, match="one width"):
        create("masknet", spec)
    model = create("masknet", spec, {"embedding_norm": False})
    assert model(kit.random_inputs(spec)).shape == (5,)
