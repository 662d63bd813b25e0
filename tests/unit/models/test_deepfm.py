"""DeepFM is first order plus pairs plus tower, and learns XOR."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import create

SMALL = {"dim": 2, "hidden": [5]}


def test_forward_is_first_order_plus_pairs_plus_tower(kit: Kit) -> None:
    spec = kit.spec_for("deepfm", SMALL, sequences=True)
    model = kit.randomize(create("deepfm", spec, SMALL))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    linear, deep = np.split(inputs.flat.numpy(), [3], axis=1)
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]
    weight, bias = model.first_order.weight.detach().numpy()[0], model.first_order.bias.item()
    vectors = model.fm.dense_vectors.detach().numpy()
    tower = kit.numpy_mlp(model.deep, np.concatenate([deep, *means], axis=1))[:, 0]
    expected = []
    for i in range(5):
        dense = deep[i, 6:]
        features = [*deep[i, :6].reshape(3, 2), *(m[i] for m in means), *(dense[:, None] * vectors)]
        pairs = sum(features[a] @ features[b] for a in range(len(features)) for b in range(a + 1, len(features)))
        expected.append(bias + linear[i].sum() + dense @ weight + pairs + tower[i])
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-10)
    assert kit.check_gradients(model, inputs)


def test_learns_xor(kit: Kit) -> None:
    assert kit.learn_xor("deepfm", {"dim": 4, "hidden": [8]}).all()


def test_several_labels_share_the_pairs(kit: Kit) -> None:
    spec = kit.spec_for("deepfm", SMALL, labels=2)
    assert create("deepfm", spec, SMALL)(kit.random_inputs(spec)).shape == (5, 2)


def test_slots_of_different_widths_are_refused(kit: Kit) -> None:
    with pytest.raises(ConfigError, match=r"one width.*user: 8"):
        create("deepfm", kit.spec_for("deepfm", dims=(4, 8, 4)))


def test_a_spec_without_linear_weights_is_refused(kit: Kit) -> None:
    with pytest.raises(ConfigError, match="needs linear weights"):
        create("deepfm", kit.spec_for("dnn"))
