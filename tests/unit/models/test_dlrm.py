"""DLRM equals explicit loops and learns XOR."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import create


@pytest.mark.parametrize("on_top", [True, False])
@pytest.mark.parametrize("dense_dim", [2, 0])
def test_forward_equals_explicit_loops(kit: Kit, on_top: bool, dense_dim: int) -> None:
    settings = {"dim": 2, "hidden": [6, 3], "bottom": [4], "embeddings_on_top": on_top}
    spec = kit.spec_for("dlrm", settings, dense_dim=dense_dim, sequences=True)
    model = kit.randomize(create("dlrm", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]
    expected = []
    for i in range(5):
        vectors = [*inputs.embeddings[i].numpy().reshape(3, 2), *(m[i] for m in means)]
        read = []
        if dense_dim:
            dense = np.maximum(kit.numpy_mlp(model.bottom, inputs.dense[i : i + 1].numpy())[0], 0)
            vectors.insert(0, dense)
            read = [dense]
        if on_top:
            read = vectors
        products = [vectors[a] @ vectors[b] for a in range(len(vectors)) for b in range(a)]
        expected.append(kit.numpy_mlp(model.deep, np.concatenate([*read, products])[None])[0, 0])
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-9)
    with torch.no_grad():
        np.testing.assert_allclose(model(inputs).numpy(), expected, rtol=1e-9)
    assert kit.check_gradients(model, inputs)


def test_learns_xor(kit: Kit) -> None:
    assert kit.learn_xor("dlrm", {"dim": 4, "hidden": [8]}).all()


def test_one_slot_alone_is_refused(kit: Kit) -> None:
    with pytest.raises(ConfigError, match="only one slot"):
        create("dlrm", kit.spec_for("dlrm", slots=("ad",), dense_dim=0))
