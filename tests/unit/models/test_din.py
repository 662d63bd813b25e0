from __future__ import annotations

import numpy as np
import pytest
import torch

from elasticctr.models import create


@pytest.mark.parametrize("softmax", [False, True])
def test_forward_equals_explicit_loops(kit, softmax):
    settings = {"dim": 3, "hidden": [5], "attention_hidden": [4], "attention_softmax": softmax}
    settings["attention"] = [{"sequence": "history", "target": "ad"}, {"sequence": "query", "target": "hour"}]
    spec = kit.spec_for("din", settings, sequences=True)
    model = kit.randomize(create("din", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    expected = []
    for i in range(5):
        parts = [inputs.deep[i].numpy()]
        for unit, slot, name in zip(model.units, (0, 2), ("history", "query"), strict=True):
            target = inputs.embeddings[i, 3 * slot : 3 * slot + 3].numpy()
            interest, scores, values = np.zeros(3), [], []
            for t in range(int(inputs.sequences[name].lengths[i])):
                value = inputs.sequences[name].values[i, t].numpy()
                x = np.concatenate([target, value, target - value, target * value])
                scores.append(kit.numpy_mlp(unit, x[None])[0, 0])
                values.append(value)
            if softmax:
                scores = list(np.exp(scores) / np.sum(np.exp(scores)))
            for score, value in zip(scores, values, strict=True):
                interest += score * value
            parts.append(interest)
        expected.append(kit.numpy_mlp(model.tower, np.concatenate(parts)[None])[0, 0])
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-9)
    assert kit.check_gradients(model, inputs)


def test_with_dice_everywhere_it_trains_and_serves(kit):
    settings = {"dim": 3, "hidden": [5], "activation": "dice", "attention_activation": "dice"}
    settings["attention"] = [{"sequence": "history", "target": "ad"}]
    model = create("din", kit.spec_for("din", settings, sequences=True), settings)
    inputs = kit.random_inputs(model.spec, 20)
    model(inputs).sum().backward()
    assert any(name.endswith("running_mean") and value.any() for name, value in model.state_dict().items())
    assert model.eval()(kit.random_inputs(model.spec, 1)).isfinite().all()
