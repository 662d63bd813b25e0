"""FM equals the sum over all pairs and learns XOR."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import create


@pytest.mark.parametrize("dense_pairs", [True, False])
def test_forward_is_the_sum_over_all_pairs(kit: Kit, dense_pairs: bool) -> None:
    settings = {"dim": 3, "dense_pairs": dense_pairs}
    spec = kit.spec_for("fm", settings, sequences=True)
    model = kit.randomize(create("fm", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    vectors = model.pairs.dense_vectors.detach().numpy() if dense_pairs else np.zeros((2, 3))
    weight, bias = model.first_order.weight.detach().numpy()[0], model.first_order.bias.detach().numpy()[0]
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]

    expected = []
    for i in range(5):
        linear, embeddings, dense = np.split(inputs.flat[i].numpy(), [3, 3 + 9])
        features = list(embeddings.reshape(3, 3)) + [m[i] for m in means]
        features += [dense[j] * vectors[j] for j in range(2)]
        total = bias + linear.sum() + dense @ weight
        for a in range(len(features)):
            for b in range(a + 1, len(features)):
                total += features[a] @ features[b]
        expected.append(total)
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-10)
    assert kit.check_gradients(model, inputs)


def test_without_dense_slots(kit: Kit) -> None:
    spec = kit.spec_for("fm", {"dim": 4}, dense_dim=0)
    model = create("fm", spec, {"dim": 4})
    assert [name for name, _ in model.named_parameters()] == ["first_order.bias"]
    assert model(kit.random_inputs(spec)).shape == (5,)


def test_only_sequences(kit: Kit) -> None:
    spec = kit.spec_for("fm", {"dim": 4}, slots=(), dense_dim=0, sequences=True)
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    a, b = (kit.numpy_mean(s) for s in inputs.sequences.values())
    logits = create("fm", spec, {"dim": 4}).double()(inputs)
    np.testing.assert_allclose(logits.detach().numpy(), (a * b).sum(axis=1), rtol=1e-12, atol=1e-12)


def test_learns_xor(kit: Kit) -> None:
    assert kit.learn_xor("fm", {"dim": 4}).all()


def test_slots_of_different_widths_are_refused(kit: Kit) -> None:
    spec = kit.spec_for("fm", dims=(4, 8, 4))
    with pytest.raises(ConfigError, match=r"ad: 4, user: 8, hour: 4.*dcnv2"):
        create("fm", spec)


def test_no_sparse_slot_is_refused(kit: Kit) -> None:
    with pytest.raises(ConfigError, match="at least one sparse slot"):
        create("fm", kit.spec_for("fm", slots=()))
