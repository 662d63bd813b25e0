"""FFM equals the sum over all pairs and learns XOR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import InputNeeds, InputSpec, create, input_needs, parse, resolve
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner


@pytest.mark.parametrize(("dense_fields", "dense_dim"), [(True, 3), (False, 3), (True, 1), (True, 0)])
@pytest.mark.parametrize("sequences", [True, False])
def test_forward_is_the_sum_over_all_pairs(kit: Kit, dense_fields: bool, dense_dim: int, sequences: bool) -> None:
    settings = {"dim": 2, "dense_fields": dense_fields}
    spec = kit.spec_for("ffm", settings, dense_dim=dense_dim, sequences=sequences)
    slots = 5 if sequences else 3
    fields = slots + (dense_dim if dense_fields else 0)
    assert spec.dims == (2 * (fields - 1),) * 3
    model = kit.randomize(create("ffm", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    means = [kit.numpy_mean(s) for s in inputs.sequences.values()]
    vectors: Any = None if model.pairs.dense_vectors is None else model.pairs.dense_vectors.detach().numpy()

    def vector_for(sample: int, i: int, j: int) -> np.ndarray:
        """Of feature i for field j, times its value."""
        place = [f for f in range(fields) if f != i].index(j)
        if i >= slots:
            return inputs.dense[sample, i - slots].item() * vectors[i - slots, place]
        row = means[i - 3][sample] if i >= 3 else inputs.embeddings[sample].numpy().reshape(3, -1)[i]
        return row.reshape(-1, 2)[place]

    expected = []
    for sample in range(5):
        total = model.first_order.bias.item() + inputs.linear[sample].sum().item()
        if dense_dim:
            total += inputs.dense[sample].numpy() @ model.first_order.weight.detach().numpy()[0]
        for i in range(fields):
            for j in range(i + 1, fields):
                total += vector_for(sample, i, j) @ vector_for(sample, j, i)
        expected.append(total)
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-10)
    with torch.no_grad():
        np.testing.assert_allclose(model(inputs).numpy(), expected, rtol=1e-10)
    assert kit.check_gradients(model, inputs)


def test_rows_hold_a_vector_for_each_other_field() -> None:
    slots = [{"name": "ad"}, {"name": "user"}, {"name": "history", "pooling": "none", "max_values": 3}]
    slots += [{"kind": "dense", "name": "x", "dim": 2}]
    job = {"schema": {"slots": slots}, "data": {"train": "log"}, "model": {"name": "ffm", "dim": 3}}
    learner = Learner(Job.model_validate(job))
    assert learner.model.spec.dims == (12, 12)
    assert learner.model.spec.sequences[0].dim == 12
    assert [segment.dim for segment in learner.plan.tables[0].settings.segments] == [1, 12]
    cls = resolve("ffm")
    assert input_needs(cls, parse(cls, {"dense_fields": False})) == InputNeeds(4, True, None, True, False)


def test_learns_xor(kit: Kit) -> None:
    assert kit.learn_xor("ffm", {"dim": 4}).all()


def test_what_does_not_fit_is_refused(kit: Kit) -> None:
    with pytest.raises(ConfigError, match="the schema has only one"):
        create("ffm", InputSpec(("ad",), (4,), linear=True))
    with pytest.raises(ConfigError, match=r"rows of 2 vectors.*9 floats do not divide"):
        create("ffm", InputSpec(("a", "b", "c"), (9, 9, 9), linear=True))
    with pytest.raises(ConfigError, match="one label, but the schema has 2"):
        create("ffm", kit.spec_for("ffm", labels=2))
    many = [{"name": f"slot{i}"} for i in range(60)]
    job = {"schema": {"slots": many}, "data": {"train": "log"}, "model": {"name": "ffm", "dim": 2000}}
    with pytest.raises(ConfigError, match=r"rows of 59 vectors of 2000 floats.*make model.dim smaller"):
        Learner(Job.model_validate(job))
