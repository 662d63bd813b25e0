"""The plain tower reads every slot, for one label or several."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import InputSpec, create, resolve
from elasticctr.models.layers.mlp import ACTIVATIONS

SMALL = {"dim": 2, "hidden": [6, 3]}


def test_forward_reads_every_slot(kit: Kit) -> None:
    spec = kit.spec_for("dnn", SMALL, sequences=True)
    model = kit.randomize(create("dnn", spec, SMALL))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]
    expected = kit.numpy_mlp(model, np.concatenate([inputs.flat.numpy(), *means], axis=1))[:, 0]
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-10)
    assert kit.check_gradients(model, inputs)


def test_slots_may_have_different_widths(kit: Kit) -> None:
    spec = kit.spec_for("dnn", SMALL, dims=(1, 5, 3))
    model = create("dnn", spec, SMALL)
    assert model(kit.random_inputs(spec)).shape == (5,)
    assert sum(p.numel() for p in model.parameters()) == (11 * 6 + 6) + (6 * 3 + 3) + (3 + 1)


def test_the_default_is_400_400_400(kit: Kit) -> None:
    model = create("dnn", kit.spec_for("dnn"))
    assert [p.shape[0] for name, p in model.named_parameters() if name.endswith("weight")] == [400, 400, 400, 1]


def test_several_labels(kit: Kit) -> None:
    spec = kit.spec_for("dnn", SMALL, labels=3)
    assert create("dnn", spec, SMALL)(kit.random_inputs(spec)).shape == (5, 3)


def test_dropout_only_while_training(kit: Kit) -> None:
    spec = kit.spec_for("dnn", SMALL)
    model = create("dnn", spec, {"dim": 2, "hidden": [64], "dropout": 0.5})
    inputs = kit.random_inputs(spec)
    assert model.training
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))


def test_every_activation_on_offer(kit: Kit) -> None:
    spec = kit.spec_for("dnn", SMALL)
    offered = get_args(resolve("dnn").settings_class.model_fields["activation"].annotation)
    assert sorted(offered) == sorted(ACTIVATIONS)
    logits = {a: create("dnn", spec, SMALL | {"activation": a})(kit.random_inputs(spec)).sum().item() for a in offered}
    assert len(set(logits.values())) == len(offered)


def test_batch_norm(kit: Kit) -> None:
    spec = kit.spec_for("dnn", SMALL)
    model = create("dnn", spec, SMALL | {"batch_norm": True})
    running = {name: value for name, value in model.state_dict().items() if "running_mean" in name}
    assert len(running) == 2
    # The trial at creation must leave no trace.
    assert all((value == 0).all() for value in running.values())


def test_learns_xor(kit: Kit) -> None:
    assert kit.learn_xor("dnn", {"dim": 4, "hidden": [16]}).all()


def test_a_width_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="slot 'b' has width 0"):
        create("dnn", InputSpec(("a", "b"), (4, 0)))


def test_no_slots_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no inputs"):
        create("dnn", InputSpec((), ()))
