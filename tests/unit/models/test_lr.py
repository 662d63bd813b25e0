from __future__ import annotations

import numpy as np
import pytest

from elasticctr.errors import ConfigError
from elasticctr.models import InputSpec, SequenceSpec, create, parse, resolve


def test_forward_is_the_sum_of_weights(kit):
    spec = kit.spec_for("lr")
    assert spec.dims == (0, 0, 0)
    assert spec.width == 3 + 2
    model = kit.randomize(create("lr", spec))
    inputs = kit.random_inputs(spec, dtype=model.first_order.bias.dtype)
    flat = inputs.flat.numpy()
    weight, bias = model.first_order.weight.detach().numpy()[0], model.first_order.bias.detach().numpy()[0]
    expected = [row[:3].sum() + sum(row[3 + j] * weight[j] for j in range(2)) + bias for row in flat]
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-12)
    assert kit.check_gradients(model, inputs)


def test_starts_at_one_half(kit):
    spec = kit.spec_for("lr", dense_dim=0)
    model = create("lr", spec)
    assert model(kit.random_inputs(spec)).tolist() == kit.random_inputs(spec).linear.sum(1).tolist()


def test_cannot_learn_xor(kit):
    assert not kit.learn_xor("lr", {}).all()


def test_a_sequence_slot_is_refused():
    spec = InputSpec(("ad",), (0,), linear=True, sequences=(SequenceSpec("history", 0, 4),))
    with pytest.raises(ConfigError, match=r"'history'.*pooling: sum or mean"):
        create("lr", spec)


def test_several_labels_are_refused():
    with pytest.raises(ConfigError, match="one label, the schema has 2"):
        create("lr", InputSpec(("ad",), (0,), linear=True, labels=2))


def test_it_has_no_embedding_width_to_set():
    with pytest.raises(ConfigError, match="dim"):
        parse(resolve("lr"), {"dim": 8})
