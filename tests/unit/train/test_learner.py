"""A learner's gradients apart from its steps: the flat dense vector that parameter servers hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elasticctr.data.batch import Batch
from elasticctr.data.schema import Schema
from elasticctr.train.input_plan import require_gradients
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.reading import PreparedBatch

SLOTS = [{"name": "user"}, {"name": "ad"}, {"kind": "dense", "name": "x", "dim": 2}]
SCHEMA = Schema.model_validate({"slots": SLOTS})


def make_learner(tmp_path: Path, model: str, **dense: Any) -> Learner:
    options: dict[str, Any] = {} if model == "lr" else {"dim": 4}
    if model == "finalnet":
        options |= {"block1_hidden": [8, 4], "block2_hidden": [6]}
    elif model not in ("lr", "fm"):
        options |= {"hidden": [8, 4]}
    return Learner(
        Job.model_validate(
            {
                "run_dir": str(tmp_path),
                "schema": {"slots": SLOTS},
                "data": {"train": "log"},
                "model": {"name": model, **options},
                "train": {"threads": 1, "seed": 3},
                "dense": dense,
            }
        )
    )


def make_items(learner: Learner, count: int) -> list[PreparedBatch]:
    random = np.random.default_rng(0)
    items = []
    for _ in range(count):
        n = 16
        batch = Batch(
            schema=SCHEMA,
            values=random.integers(0, 50, 2 * n).astype(np.uint64),
            offsets=np.arange(2 * n + 1, dtype=np.int32),
            dense=random.normal(size=(n, 2)).astype(np.float32),
            labels=random.integers(0, 2, (n, 1)).astype(np.float32),
            weights=np.ones(n, dtype=np.float32),
            shows=np.ones(n, dtype=np.float32),
        )
        items.append(PreparedBatch(batch, learner.look_up(batch), {}))
    return items


@pytest.mark.parametrize("model", ["lr", "fm", "dnn", "wide_deep", "deepfm", "dcnv2", "finalnet"])
def test_computing_then_stepping_the_flat_vector_is_a_step(tmp_path: Path, model: str) -> None:
    """SGD by hand on the flat vector does what the learner's own step does, native towers included."""
    whole = make_learner(tmp_path, model, optimizer="sgd", learning_rate=0.5)
    parts = make_learner(tmp_path, model, optimizer="sgd", learning_rate=0.5)
    for item in make_items(whole, 3):
        copy = PreparedBatch(item.batch, parts.look_up(item.batch), {})
        loss = whole.step(item)
        inputs = parts.sparse.pull(copy, train=True)
        found, logits = parts.compute(inputs, copy.batch)
        assert found == loss
        vector, gradient = parts.flat_dense(), parts.flat_gradient()
        assert vector.shape == gradient.shape == (parts.dense_floats,)
        parts.clear_gradients()
        parts.set_flat_dense(vector - 0.5 * gradient)
        parts.sparse.push(copy, inputs, 1.0)
        parts.observe(logits, copy.batch)
    torch.testing.assert_close(parts.flat_dense(), whole.flat_dense(), rtol=1e-6, atol=1e-7)
    expected = torch.cat([p.detach().reshape(-1) for p in whole.model.parameters()])
    assert torch.equal(whole.flat_dense(), expected)
    assert parts.metrics.compute() == whole.metrics.compute()
    for a, b in zip(whole.sparse.tables, parts.sparse.tables, strict=True):
        for left, right in zip(a.rows(), b.rows(), strict=True):
            np.testing.assert_allclose(left.weights, right.weights, rtol=1e-5, atol=1e-7)


def test_a_parameter_without_gradient_is_zeros(tmp_path: Path) -> None:
    learner = make_learner(tmp_path, "dnn")
    assert not learner.flat_gradient(torch.ones(learner.dense_floats)).any()


def test_scores_change_nothing(tmp_path: Path) -> None:
    learner = make_learner(tmp_path, "dnn")
    (item,) = make_items(learner, 1)
    learner.step(item)
    before = learner.flat_dense()
    inputs, arrays = learner.plan.make_inputs(item)
    for table, plan, lookup, targets in zip(
        learner.sparse.tables, learner.plan.tables, item.lookups, arrays, strict=True
    ):
        table.pull(lookup, plan.layout, targets)
    assert np.array_equal(learner.score(inputs), learner.predict(item))
    require_gradients(inputs)
    assert inputs.flat.requires_grad
    assert torch.equal(learner.flat_dense(), before)


@pytest.mark.parametrize("model", ["wide_deep", "deepfm"])
def test_parameters_laid_out_flat_are_the_model(tmp_path: Path, model: str) -> None:
    plain, flat = make_learner(tmp_path, model), make_learner(tmp_path, model)
    values, gradient = flat.lay_out_flat()
    assert torch.equal(values, plain.flat_dense())
    for item in make_items(plain, 3):
        for learner in (plain, flat):
            inputs = learner.sparse.pull(item, train=True)
            require_gradients(inputs)
            learner.clear_gradients()
            learner.compute(inputs, item.batch)
        expected = plain.flat_gradient()
        assert torch.equal(flat.flat_gradient(gradient), expected)
        assert expected.any()
        values -= 0.5 * gradient  # what is written to the vector is in the model
        plain.set_flat_dense(plain.flat_dense() - 0.5 * expected)
        assert torch.equal(flat.flat_dense(), plain.flat_dense())


def test_a_step_goes_back_from_the_losses_a_model_has_of_its_own(tmp_path: Path) -> None:
    """By hand: cross-entropy of the mean of two blocks, and of each block against that mean, all times the weight."""
    learner = make_learner(tmp_path, "finalnet")
    item = make_items(learner, 1)[0]
    item.batch.weights[:] = np.linspace(0, 3, len(item.batch), dtype=np.float32)
    inputs = learner.sparse.pull(item, train=True)
    loss, logits = learner.compute(inputs, item.batch)
    model: Any = learner.model
    by_head = [head.bias.grad.clone() for head in (model.head1, model.head2)]
    with torch.no_grad():
        blocks = [z[:, 0].double().numpy() for z in model._of_blocks(inputs)]
    y, w = item.batch.labels[:, 0].astype(np.float64), item.batch.weights.astype(np.float64)
    p, q = 1 / (1 + np.exp(-(blocks[0] + blocks[1]) / 2)), [1 / (1 + np.exp(-z)) for z in blocks]
    np.testing.assert_allclose(logits.numpy(), (blocks[0] + blocks[1]) / 2, rtol=1e-5, atol=1e-6)
    assert loss == pytest.approx(float(np.mean(-w * (y * np.log(p) + (1 - y) * np.log(1 - p)))), rel=1e-5)
    for gradient, block in zip(by_head, q, strict=True):
        expected = float(np.mean(w * ((p - y) / 2 + (block - p))))
        assert float(gradient[0]) == pytest.approx(expected, rel=1e-4, abs=1e-7)
