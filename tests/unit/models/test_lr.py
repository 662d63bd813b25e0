"""LR is the sum of its weights, starts at one half, and cannot learn XOR."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from tests.unit.models.conftest import Kit

from elasticctr.data.batch import Batch
from elasticctr.errors import ConfigError
from elasticctr.models import InputSpec, SequenceSpec, create, parse, resolve
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.reading import PreparedBatch


def test_forward_is_the_sum_of_weights(kit: Kit) -> None:
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


def test_starts_at_one_half(kit: Kit) -> None:
    spec = kit.spec_for("lr", dense_dim=0)
    model = create("lr", spec)
    assert model(kit.random_inputs(spec)).tolist() == kit.random_inputs(spec).linear.sum(1).tolist()


def test_cannot_learn_xor(kit: Kit) -> None:
    assert not kit.learn_xor("lr", {}).all()


def test_a_sequence_slot_is_refused() -> None:
    spec = InputSpec(("ad",), (0,), linear=True, sequences=(SequenceSpec("history", 0, 4),))
    with pytest.raises(ConfigError, match=r"'history'.*pooling: sum or mean"):
        create("lr", spec)


def test_several_labels_are_refused() -> None:
    with pytest.raises(ConfigError, match="one label, but the schema has 2"):
        create("lr", InputSpec(("ad",), (0,), linear=True, labels=2))


def test_it_has_no_embedding_width_to_set() -> None:
    with pytest.raises(ConfigError, match="dim"):
        parse(resolve("lr"), {"dim": 8})


@pytest.mark.parametrize("key", ["optimizer", "linear_optimizer"])
def test_with_ftrl_it_is_the_papers(key: str) -> None:
    """McMahan et al., algorithm 1, in float64, a feasign's gradients of a batch taken together."""
    alpha, beta, l1, l2 = 0.3, 1.0, 0.02, 0.1
    ftrl = {"name": "ftrl", "learning_rate": alpha, "beta": beta, "l1": l1, "l2": l2}
    slots = [{"name": "ad"}, {"name": "user"}]
    job = Job.model_validate(
        {"schema": {"slots": slots}, "data": {"train": "log"}, "model": {"name": "lr"}, "sparse": {key: ftrl}}
    )
    learner = Learner(job)
    random = np.random.default_rng(5)
    z, n, w = (defaultdict[int, float](float) for _ in range(3))
    samples = 64
    for _ in range(4):
        values = np.concatenate([1 + random.integers(0, 9, samples), 100 + random.integers(0, 40, samples)])
        labels = random.integers(0, 2, (samples, 1)).astype(np.float32)
        ones = np.ones(samples, dtype=np.float32)
        batch = Batch(
            schema=job.samples,
            labels=labels,
            dense=np.zeros((samples, 0), np.float32),
            values=values.astype(np.uint64),
            offsets=np.arange(2 * samples + 1, dtype=np.int32),
            weights=ones,
            shows=ones,
        )
        pairs = values.reshape(2, samples).T
        model: Any = learner.model
        bias = model.first_order.bias.item()
        learner.step(PreparedBatch(batch, learner.look_up(batch), {}))
        gradients: dict[int, float] = defaultdict(float)
        for (ad, user), label in zip(pairs, labels[:, 0], strict=True):
            p = 1 / (1 + np.exp(-(bias + w[ad] + w[user])))
            for feasign in (ad, user):
                gradients[feasign] += (p - label) / samples
        for feasign, g in gradients.items():
            sigma = (np.sqrt(n[feasign] + g * g) - np.sqrt(n[feasign])) / alpha
            z[feasign] += g - sigma * w[feasign]
            n[feasign] += g * g
            shrunk = z[feasign] - np.sign(z[feasign]) * l1
            w[feasign] = 0.0 if abs(z[feasign]) <= l1 else -shrunk / ((beta + np.sqrt(n[feasign])) / alpha + l2)
    (rows,) = learner.sparse.tables[0].rows()
    assert len(rows) == len(w)
    expected = np.array([w[int(feasign)] for feasign in rows.feasigns])
    np.testing.assert_allclose(rows.weights[:, 0], expected, rtol=2e-4, atol=1e-7)
    assert 0 < np.count_nonzero(expected) < len(expected)
    assert ((rows.weights[:, 0] == 0) == (expected == 0)).all(), "weights under l1 are exactly zero"
