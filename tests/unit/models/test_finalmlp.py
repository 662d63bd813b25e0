"""FinalMLP equals NumPy, with and without gates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import create

SMALL = {"dim": 2, "mlp1_hidden": [5, 4], "mlp2_hidden": [6], "fs_hidden": [3], "num_heads": 2}


def stream(kit: Kit, mlp: torch.nn.Module, x: np.ndarray) -> np.ndarray:
    return np.maximum(kit.numpy_mlp(mlp, x), 0)


@pytest.mark.parametrize("labels", [1, 2])
def test_forward_equals_numpy(kit: Kit, labels: int) -> None:
    settings = SMALL | {"fs1_context": ["user"], "fs2_context": ["history", "ad"]}
    spec = kit.spec_for("finalmlp", settings, dims=(1, 3, 2), sequences=True, labels=labels)
    model = kit.randomize(create("finalmlp", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    flat = inputs.flat.numpy()
    history, query = (kit.numpy_mean(inputs.sequences[name]) for name in ("history", "query"))
    features = np.concatenate([flat, history, query], axis=1)
    gates = [
        2 / (1 + np.exp(-kit.numpy_mlp(gate.mlp, context)))
        for gate, context in (
            (model.gate1, flat[:, 1:4]),
            (model.gate2, np.concatenate([history, flat[:, :1]], axis=1)),
        )
    ]
    x, y = stream(kit, model.mlp1, features * gates[0]), stream(kit, model.mlp2, features * gates[1])
    fusion = model.fusion
    w = fusion.weight.detach().numpy()
    expected = x @ fusion.x.weight.detach().numpy().T + fusion.x.bias.detach().numpy()
    expected = expected + y @ fusion.y.weight.detach().numpy().T
    for b in range(5):
        for label in range(labels):
            for h in range(2):
                matrix = w[h][:, label * 3 : (label + 1) * 3]
                expected[b, label] += x[b, 2 * h : 2 * h + 2] @ matrix @ y[b, 3 * h : 3 * h + 3]
    result = model(inputs).detach().numpy()
    np.testing.assert_allclose(result, expected[:, 0] if labels == 1 else expected, rtol=1e-9)
    if labels == 1:
        assert kit.check_gradients(model, inputs)


def test_without_gates_and_with_gates_that_are_open_it_is_the_same(kit: Kit) -> None:
    """A gate without context starts at 1: it must learn what to leave out, not what to let in."""
    spec = kit.spec_for("finalmlp", SMALL)
    plain = create("finalmlp", spec, SMALL | {"feature_gates": False})
    gated = create("finalmlp", spec, SMALL)
    gated.load_state_dict(plain.state_dict(), strict=False)
    inputs = kit.random_inputs(spec)
    torch.testing.assert_close(plain(inputs), gated(inputs))


def test_batch_norm_and_dropout_are_each_streams_own(kit: Kit) -> None:
    settings = SMALL | {"mlp1_batch_norm": True, "mlp2_dropout": 0.5, "mlp2_activation": "tanh"}
    model: Any = create("finalmlp", kit.spec_for("finalmlp", settings), settings)
    assert model.mlp1.norms is not None
    assert model.mlp1.dropout is None
    assert model.mlp2.norms is None
    assert model.mlp2.dropout is not None
    assert isinstance(model.mlp2.activation, torch.nn.Tanh)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"num_heads": 3}, "num_heads 3 must divide"), ({"fs1_context": ["nobody"]}, "'nobody' is not a sparse slot")],
)
def test_what_does_not_fit_is_refused(kit: Kit, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create("finalmlp", kit.spec_for("finalmlp", SMALL), SMALL | settings)
