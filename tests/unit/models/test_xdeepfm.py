"""xDeepFM equals explicit loops and learns XOR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import create, parse, resolve


def cin_by_loops(model: Any, fields: np.ndarray, split_half: bool) -> np.ndarray:
    """One sample's [fields, K] → the sums of its maps."""
    maps, sums = list(fields), []
    layers = len(model.cin.weights)
    for number in range(layers):
        weight, bias = model.cin.weights[number].detach().numpy(), model.cin.biases[number].detach().numpy()
        after = []
        for h in range(len(weight)):
            made = np.full(fields.shape[1], bias[h])
            for i, one in enumerate(maps):
                for j, field in enumerate(fields):
                    made = made + weight[h, i * len(fields) + j] * one * field
            after.append(made)
        put_out = len(after) - len(after) // 2 if split_half and number + 1 < layers else len(after)
        sums += [one.sum() for one in after[:put_out]]
        maps = after[put_out:] if put_out < len(after) else after
    return np.array(sums)


@pytest.mark.parametrize("split_half", [True, False])
@pytest.mark.parametrize(("hidden", "dense_fields"), [([5], True), ([], False)])
def test_forward_equals_explicit_loops(kit: Kit, split_half: bool, hidden: list[int], dense_fields: bool) -> None:
    settings = {"dim": 2, "hidden": hidden, "cin": [4, 3, 2], "split_half": split_half, "dense_fields": dense_fields}
    spec = kit.spec_for("xdeepfm", settings, sequences=True)
    model = kit.randomize(create("xdeepfm", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]
    weight, bias = model.first_order.weight.detach().numpy()[0], model.first_order.bias.item()
    expected = []
    for i in range(5):
        dense = inputs.dense[i].numpy()
        fields = [*inputs.embeddings[i].numpy().reshape(3, 2), *(m[i] for m in means)]
        if dense_fields:
            fields += list(dense[:, None] * model.fields.dense_vectors.detach().numpy())
        sums = cin_by_loops(model, np.stack(fields), split_half)
        logit = bias + inputs.linear[i].sum().item() + dense @ weight + kit.numpy_mlp(model.head, sums[None])[0, 0]
        if hidden:
            logit += kit.numpy_mlp(model.deep, np.concatenate([inputs.deep[i].numpy(), *(m[i] for m in means)])[None])[
                0, 0
            ]
        expected.append(logit)
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-9)
    assert kit.check_gradients(model, inputs)


def test_learns_xor(kit: Kit) -> None:
    assert kit.learn_xor("xdeepfm", {"dim": 4, "hidden": [], "cin": [4, 4]}).all()


def test_a_network_without_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match="cin"):
        parse(resolve("xdeepfm"), {"cin": []})
