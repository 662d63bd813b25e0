"""The behaviour sequence transformer equals explicit loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.models import create


def normalise(x: np.ndarray, norm: torch.nn.LayerNorm) -> np.ndarray:
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + norm.eps)
    return x * norm.weight.detach().numpy() + norm.bias.detach().numpy()


def layer_by_numpy(layer: Any, x: np.ndarray) -> np.ndarray:
    def linear(x: np.ndarray, part: torch.nn.Linear) -> np.ndarray:
        return x @ part.weight.detach().numpy().T + part.bias.detach().numpy()

    heads = []
    for q, k, v in zip(
        *layer.projection.weight.detach().numpy().reshape(3, layer.heads, layer.head_dim, -1), strict=True
    ):
        scores = np.exp((x @ q.T) @ (x @ k.T).T / np.sqrt(layer.head_dim))
        heads.append(scores / scores.sum(axis=1, keepdims=True) @ (x @ v.T))
    x = normalise(x + linear(np.concatenate(heads, axis=1), layer.output), layer.after_attention)
    inner = linear(x, layer.widen)
    return normalise(x + linear(np.where(inner > 0, inner, 0.01 * inner), layer.narrow), layer.after_all)


@pytest.mark.parametrize("readout", ["mean", "target", "concat"])
def test_forward_equals_explicit_loops(kit: Kit, readout: str) -> None:
    settings = {"dim": 3, "hidden": [5], "layers": 2, "heads": 2, "head_dim": 2, "feed_forward": 4, "readout": readout}
    settings["attention"] = [{"sequence": "history", "target": "ad"}]
    spec = kit.spec_for("bst", settings, sequences=True)
    model = kit.randomize(create("bst", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    history, means = inputs.sequences["history"], kit.numpy_mean(inputs.sequences["query"])
    transformer = model.transformers[0]
    ages = transformer.recency.vectors.weight.detach().numpy()
    expected = []
    for i in range(5):
        length = int(history.lengths[i])
        tokens = [inputs.embeddings[i, :3].numpy() + ages[0]]
        tokens += [history.values[i, t].numpy() + ages[length - t] for t in range(length)]
        x = np.stack(tokens)
        for layer in transformer.layers:
            x = layer_by_numpy(layer, x)
        wide = np.zeros(15)
        wide[: x.size] = x.reshape(-1)
        read = {"mean": x.mean(axis=0), "target": x[0], "concat": wide}[readout]
        expected.append(
            kit.numpy_mlp(model.tower, np.concatenate([inputs.deep[i].numpy(), means[i], read])[None])[0, 0]
        )
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-8)
    assert kit.check_gradients(model, inputs)
