"""DIEN equals explicit loops and has an auxiliary loss in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import InputSpec, SequenceSpec, create
from elasticctr.models.layers.auxiliary import next_value_losses

ATTENTION = [{"sequence": "history", "target": "ad"}]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def last_interest(evolution: Any, target: np.ndarray, values: np.ndarray) -> np.ndarray:
    """From the paper: interests by a GRU, attention by exp(h W e), evolution by a GRU of its own."""
    dim = len(target)
    if not len(values):
        return np.zeros(dim)

    def run(layer: Any, xs: np.ndarray, attention: np.ndarray | None) -> np.ndarray:
        w, b = layer.inputs.weight.detach().numpy(), layer.inputs.bias.detach().numpy()
        u = layer.states.weight.detach().numpy()
        h, states = np.zeros(dim), []
        for t, x in enumerate(xs):
            r, c, *z = [slice(k * dim, (k + 1) * dim) for k in range(len(w) // dim)]
            reset = sigmoid(w[r] @ x + b[r] + u[r] @ h)
            candidate = np.tanh(w[c] @ x + b[c] + reset * (u[c] @ h))
            update = sigmoid(w[z[0]] @ x + b[z[0]] + u[z[0]] @ h) if z else 1.0
            update = update * (1.0 if attention is None else attention[t])
            h = (1 - update) * h + update * candidate
            states.append(h)
        return np.stack(states)

    interests = run(evolution.extractor, values, None)
    scores = np.exp(interests @ (evolution.bilinear.weight.detach().numpy() @ target))
    return run(evolution.evolution, interests, scores / scores.sum())[-1]


@pytest.mark.parametrize("kind", ["augru", "agru"])
def test_forward_equals_explicit_loops(kit: Kit, kind: str) -> None:
    settings = {"dim": 3, "hidden": [5], "attention": ATTENTION, "evolution": kind}
    spec = kit.spec_for("dien", settings, sequences=True)
    model = kit.randomize(create("dien", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    history, means = inputs.sequences["history"], kit.numpy_mean(inputs.sequences["query"])
    expected = []
    for i in range(5):
        target, values = inputs.embeddings[i, :3].numpy(), history.values[i, : int(history.lengths[i])].numpy()
        interest = last_interest(model.evolutions[0], target, values)
        x = np.concatenate([inputs.deep[i].numpy(), means[i], interest])
        expected.append(kit.numpy_mlp(model.tower, x[None])[0, 0])
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-9)
    assert kit.check_gradients(model, inputs)


def test_training_has_an_auxiliary_loss_of_each_sample(kit: Kit) -> None:
    settings = {"dim": 3, "hidden": [5], "attention": ATTENTION, "auxiliary": 0.5}
    model: Any = create("dien", kit.spec_for("dien", settings, sequences=True), settings, seed=1).double()
    inputs = kit.random_inputs(model.spec, 8, dtype=torch.float64)
    logits, losses = model.training_forward(inputs)
    assert torch.equal(logits, model(inputs))
    read = model.behaviours.pairs[0].read(inputs)
    alone = 0.5 * next_value_losses(model.evolutions[0].extractor(read.keys), read.keys, read.mask)
    torch.testing.assert_close(losses, alone)
    assert losses.sum() > 0
    without = create("dien", model.spec, settings | {"auxiliary": 0.0}, seed=1).double()
    assert without.training_forward(inputs)[1] is None


def test_a_long_sequence_is_refused() -> None:
    spec = InputSpec(slots=("item",), dims=(4,), sequences=(SequenceSpec("history", 4, 1024, "item"),))
    with pytest.raises(ConfigError, match="at most 256; slot 'history' keeps 1024: lower its max_values"):
        create("dien", spec, {"dim": 4})
