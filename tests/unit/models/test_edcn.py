"""EDCN equals explicit loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.models import create


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def bridge(layer: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if layer.kind == "product":
        return x * y
    if layer.kind == "sum":
        return x + y
    if layer.kind == "concat":
        joined = np.concatenate([x, y])
        return np.maximum(layer.join.weight.detach().numpy() @ joined + layer.join.bias.detach().numpy(), 0)
    total = np.zeros_like(x)
    for part, v in ((layer.first, x), (layer.second, y)):
        inner = np.maximum(part.inner.weight.detach().numpy() @ v + part.inner.bias.detach().numpy(), 0)
        total += softmax(part.outer.weight.detach().numpy() @ inner) * v
    return total


@pytest.mark.parametrize("kind", ["product", "sum", "concat", "attention"])
def test_forward_equals_explicit_loops(kit: Kit, kind: str) -> None:
    settings = {"dim": 2, "layers": 2, "bridge": kind, "temperature": 2.0, "batch_norm": False}
    spec = kit.spec_for("edcn", settings, dims=(1, 3, 2), sequences=True)
    model = kit.randomize(create("edcn", spec, settings))
    inputs = kit.random_inputs(spec, batch=3, dtype=torch.float64)
    features = np.concatenate([inputs.flat.numpy(), *(kit.numpy_mean(s) for s in inputs.sequences.values())], axis=1)
    widths = [1, 3, 2, 2, 2, 2]  # slots, dense floats as one, sequences
    expected = []
    for row in features:
        bridged, first = row, None
        for i in range(2):
            shares = [np.repeat(softmax(s / 2.0), widths) for s in model.regulations[i].scores.detach().numpy()]
            cross, deep = bridged * shares[0], bridged * shares[1]
            first = cross if first is None else first
            dot = float(model.cross[i].weight.detach().numpy()[0] @ cross)
            cross = first * dot + model.biases[i].detach().numpy() + cross
            deep = np.maximum(kit.numpy_mlp(model.deep[i], deep[None])[0], 0)
            bridged = bridge(model.bridges[i], cross, deep)
        out = np.concatenate([cross, deep, bridged])
        expected.append(model.head.weight.detach().numpy()[0] @ out + model.head.bias.item())
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-8)
    assert kit.check_gradients(model, inputs)


def test_batch_norm_stands_before_both_streams_of_every_layer(kit: Kit) -> None:
    settings = {"layers": 2, "batch_norm": True}
    model: Any = create("edcn", kit.spec_for("edcn", settings), settings)
    model(kit.random_inputs(model.spec, 16))
    assert [int(norm.num_batches_tracked) for norm in model.norms] == [1, 1, 1, 1]
