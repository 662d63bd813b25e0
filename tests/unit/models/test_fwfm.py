"""FwFM equals the weighted sum over all pairs, and starts as an FM."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import create


@pytest.mark.parametrize("dense_fields", [True, False])
@pytest.mark.parametrize("linear_part", ["field", "feature"])
def test_forward_is_the_weighted_sum_over_all_pairs(kit: Kit, dense_fields: bool, linear_part: str) -> None:
    settings = {"dim": 3, "dense_fields": dense_fields, "linear_part": linear_part}
    spec = kit.spec_for("fwfm", settings, sequences=True)
    assert spec.linear == (linear_part == "feature")
    model = kit.randomize(create("fwfm", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]
    weight, bias = model.first_order.weight.detach().numpy()[0], model.first_order.bias.item()
    expected = []
    for i in range(5):
        dense = inputs.dense[i].numpy()
        features = [*inputs.embeddings[i].numpy().reshape(3, 3), *(m[i] for m in means)]
        if dense_fields:
            features += list(dense[:, None] * model.fields.dense_vectors.detach().numpy())
        total = bias + inputs.linear[i].sum().item() + dense @ weight
        for r, (a, b) in zip(model.pairs.weight.tolist(), itertools.combinations(features, 2), strict=True):
            total += r * (a @ b)
        if linear_part == "field":
            total += np.concatenate(features) @ model.field_weights.detach().numpy()[:, 0]
        expected.append(total)
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-10)
    assert kit.check_gradients(model, inputs)


def test_starts_as_a_factorization_machine(kit: Kit) -> None:
    settings = {"dim": 4, "linear_part": "feature", "dense_fields": False}
    spec = kit.spec_for("fwfm", settings)
    inputs = kit.random_inputs(spec)
    fm = create("fm", spec, {"dim": 4, "dense_pairs": False})
    torch.testing.assert_close(create("fwfm", spec, settings)(inputs), fm(inputs))


def test_learns_xor(kit: Kit) -> None:
    assert kit.learn_xor("fwfm", {"dim": 4}).all()


def test_what_does_not_fit_is_refused(kit: Kit) -> None:
    with pytest.raises(ConfigError, match="one label, but the schema has 2"):
        create("fwfm", kit.spec_for("fwfm", labels=2))
    with pytest.raises(ConfigError, match=r"one width.*user: 8"):
        create("fwfm", kit.spec_for("fwfm", dims=(4, 8, 4)))
