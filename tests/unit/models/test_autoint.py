"""AutoInt equals explicit loops and learns XOR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.models import create


def attend_by_loops(layer: Any, fields: np.ndarray, scale: bool) -> np.ndarray:
    """One sample's [fields, in] → [fields, heads * head_dim]."""
    heads, dim = layer.heads, layer.head_dim
    query, key, value, residual = layer.projection.weight.detach().numpy().reshape(4, heads, dim, -1)
    result = np.zeros((len(fields), heads, dim))
    for h in range(heads):
        for m in range(len(fields)):
            scores = np.array([(query[h] @ fields[m]) @ (key[h] @ other) for other in fields])
            scores = np.exp(scores / (np.sqrt(dim) if scale else 1.0))
            read = sum(s / scores.sum() * (value[h] @ other) for s, other in zip(scores, fields, strict=True))
            result[m, h] = np.maximum(read + residual[h] @ fields[m], 0)
    return result.reshape(len(fields), -1)


@pytest.mark.parametrize(("hidden", "wide", "dense_fields"), [([5], False, True), ([], True, True), ([], False, False)])
@pytest.mark.parametrize("scale", [True, False])
def test_forward_equals_explicit_loops(
    kit: Kit, hidden: list[int], wide: bool, dense_fields: bool, scale: bool
) -> None:
    settings = {"dim": 2, "hidden": hidden, "attention_layers": 2, "heads": 2, "head_dim": 3}
    settings |= {"scale": scale, "wide": wide, "dense_fields": dense_fields}
    spec = kit.spec_for("autoint", settings, sequences=True)
    assert spec.linear == wide
    model = kit.randomize(create("autoint", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]
    expected = []
    for i in range(5):
        dense = inputs.dense[i].numpy()
        fields = [*inputs.embeddings[i].numpy().reshape(3, 2), *(m[i] for m in means)]
        if dense_fields:
            fields += list(dense[:, None] * model.fields.dense_vectors.detach().numpy())
        x = np.stack(fields)
        for layer in model.attention:
            x = attend_by_loops(layer, x, scale)
        logit = kit.numpy_mlp(model.head, x.reshape(1, -1))[0, 0]
        if hidden:
            logit += kit.numpy_mlp(model.deep, np.concatenate([inputs.deep[i].numpy(), *(m[i] for m in means)])[None])[
                0, 0
            ]
        if wide:
            linear = model.first_order
            logit += linear.bias.item() + inputs.linear[i].sum().item() + dense @ linear.weight.detach().numpy()[0]
        expected.append(logit)
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-9)
    assert kit.check_gradients(model, inputs)


def test_learns_xor_by_attention_alone(kit: Kit) -> None:
    assert kit.learn_xor("autoint", {"dim": 4, "hidden": [], "attention_layers": 2, "head_dim": 4}).all()
