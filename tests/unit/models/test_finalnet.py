"""FinalNet equals NumPy, and its blocks learn from their mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.models import create


def block(layers: Any, x: np.ndarray, residual: str) -> np.ndarray:
    for linear in layers.linears:
        h = x @ linear.weight.detach().numpy().T + linear.bias.detach().numpy()
        n = h.shape[1] // 2
        a, b = h[:, :n], h[:, n:]
        x = np.concatenate([a, a * b], axis=1) if residual == "concat" else a + a * b
        x = np.maximum(x, 0) if layers.activation is not None else x
    return x


@pytest.mark.parametrize("residual", ["concat", "sum"])
@pytest.mark.parametrize("block_type", ["1B", "2B"])
def test_forward_equals_numpy(kit: Kit, residual: str, block_type: str) -> None:
    settings = {"dim": 2, "block1_hidden": [4, 6], "block2_hidden": [2], "block1_activation": "relu"}
    settings |= {"residual": residual, "block_type": block_type, "feature_gating": True}
    spec = kit.spec_for("finalnet", settings, sequences=True)
    model = kit.randomize(create("finalnet", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]
    flat = inputs.flat.numpy()
    features = np.concatenate([flat, *means], axis=1)
    fields = np.concatenate([flat[:, :6], *means], axis=1).reshape(-1, 5, 2)
    mix, bias = model.gate.mix.weight.detach().numpy(), model.gate.mix.bias.detach().numpy()
    gated = np.empty_like(fields)
    for b in range(len(fields)):
        for i in range(5):
            for k in range(2):
                gated[b, i, k] = fields[b, i, k] * (bias[i] + sum(mix[i, j] * fields[b, j, k] for j in range(5)))
    first = block(model.block1, np.concatenate([features, gated.reshape(-1, 10)], axis=1), residual)
    expected = first @ model.head1.weight.detach().numpy().T + model.head1.bias.detach().numpy()
    if block_type == "2B":
        second = block(model.block2, features, residual)
        expected = (expected + second @ model.head2.weight.detach().numpy().T + model.head2.bias.detach().numpy()) / 2
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected[:, 0], rtol=1e-8)
    assert kit.check_gradients(model, inputs)


def test_widths_may_differ_without_gating(kit: Kit) -> None:
    spec = kit.spec_for("finalnet", dims=(1, 3, 2))
    assert create("finalnet", spec)(kit.random_inputs(spec)).shape == (5,)


def test_one_layer_without_activation_is_enough_for_xor(kit: Kit) -> None:
    settings = {"dim": 4, "block_type": "1B", "block1_hidden": [8]}
    assert kit.learn_xor("finalnet", settings).all()


@pytest.mark.parametrize("labels", [1, 2])
def test_blocks_learn_from_their_mean(kit: Kit, labels: int) -> None:
    settings = {"dim": 2, "block1_hidden": [4], "block2_hidden": [2], "distillation": 0.3}
    spec = kit.spec_for("finalnet", settings, labels=labels)
    model = kit.randomize(create("finalnet", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    logits, losses = model.training_forward(inputs)
    assert torch.equal(logits, model(inputs))
    assert losses.shape == logits.shape
    losses.sum().backward()
    slopes = [np.zeros(labels), np.zeros(labels)]
    for i, x in enumerate(inputs.flat.numpy()):
        blocks = []
        for layers, head in ((model.block1, model.head1), (model.block2, model.head2)):
            blocks.append(block(layers, x[None], "concat")[0] @ head.weight.detach().numpy().T)
            blocks[-1] += head.bias.detach().numpy()
        p = 1 / (1 + np.exp(-(blocks[0] + blocks[1]) / 2))  # fixed: the mean does not learn from the blocks
        expected = np.zeros(labels)
        for slope, z in zip(slopes, blocks, strict=True):
            q = 1 / (1 + np.exp(-z))
            expected -= 0.3 * (p * np.log(q) + (1 - p) * np.log(1 - q))
            slope += 0.3 * (q - p)
        np.testing.assert_allclose(losses[i].detach().numpy(), expected if labels > 1 else expected[0], rtol=1e-9)
    np.testing.assert_allclose(model.head1.bias.grad.numpy(), slopes[0], rtol=1e-9)
    np.testing.assert_allclose(model.head2.bias.grad.numpy(), slopes[1], rtol=1e-9)


@pytest.mark.parametrize("settings", [{"distillation": 0.0}, {"block_type": "1B"}])
def test_no_distillation(kit: Kit, settings: dict[str, Any]) -> None:
    model = create("finalnet", kit.spec_for("finalnet", settings), settings)
    assert model.training_forward(kit.random_inputs(model.spec))[1] is None
