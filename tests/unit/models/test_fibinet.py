"""FiBiNET equals explicit loops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import create


def pairs_by_loops(layer: Any, v: np.ndarray, kind: str) -> np.ndarray:
    weight = layer.weight.detach().numpy()
    values = []
    for number, (i, j) in enumerate(itertools.combinations(range(v.shape[0]), 2)):
        matrix = weight[{"all": 0, "each": i, "interaction": number}[kind]]
        values += [sum(v[i, n] * matrix[n, k] for n in range(v.shape[1])) * v[j, k] for k in range(v.shape[1])]
    return np.array(values)


@pytest.mark.parametrize("kind", ["all", "each", "interaction"])
def test_forward_equals_explicit_loops(kit: Kit, kind: str) -> None:
    settings = {"dim": 2, "hidden": [4], "bilinear": kind, "reduction": 2}
    spec = kit.spec_for("fibinet", settings, sequences=True)
    model = kit.randomize(create("fibinet", spec, settings))
    inputs = kit.random_inputs(spec, batch=3, dtype=torch.float64)
    squeeze, excite = (m.weight.detach().numpy() for m in (model.squeeze.squeeze, model.squeeze.excite))
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]
    expected = []
    for b, row in enumerate(inputs.flat.numpy()):
        v = np.concatenate([row[3:9], *(m[b] for m in means)]).reshape(5, 2)
        a = np.maximum(excite @ np.maximum(squeeze @ v.mean(axis=1), 0), 0)
        parts = [
            pairs_by_loops(model.plain_pairs, v, kind),
            pairs_by_loops(model.scaled_pairs, v * a[:, None], kind),
            row[9:],
        ]
        linear = model.first_order.bias.item() + row[:3].sum() + model.first_order.weight.detach().numpy()[0] @ row[9:]
        expected.append(linear + kit.numpy_mlp(model.deep, np.concatenate(parts)[None])[0, 0])
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-9)
    assert kit.check_gradients(model, inputs)


def test_one_slot_has_no_pairs(kit: Kit) -> None:
    with pytest.raises(ConfigError, match="pairs of slots"):
        create("fibinet", kit.spec_for("fibinet", slots=("ad",)))
