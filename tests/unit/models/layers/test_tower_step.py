"""The native step against autograd in float64, and where it must leave the work to autograd."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.unit.models.conftest import Kit
from torch import Tensor
from torch.nn import functional as F

from elasticctr import _native
from elasticctr.models import create
from elasticctr.models.inputs import Inputs
from elasticctr.models.layers import set_native_towers, set_tower_precision
from elasticctr.models.layers.tower_step import TowerStep
from elasticctr.models.model import Model
from elasticctr.models.wide_deep import WideDeep

SMALL = {"dim": 2, "hidden": [40, 6, 3]}


@pytest.fixture(autouse=True)
def _restore_switches() -> Iterator[None]:
    threads = _native.threads()
    yield
    _native.set_threads(threads)
    set_native_towers(True)
    set_tower_precision("fp32")


def make_samples(rows: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(3)
    return (torch.rand(rows, generator=g) < 0.3).float(), torch.rand(rows, generator=g) + 0.5


def take_step(model: Model, inputs: Inputs, labels: Tensor, weights: Tensor) -> tuple[float, Tensor]:
    parts = model.tower_parts()
    assert parts is not None
    inputs.flat.requires_grad_()
    step = TowerStep(parts)
    assert step.can_run(inputs)
    return step.run(inputs, labels, weights)


@pytest.mark.parametrize(
    ("name", "batch_norm", "rows"),
    [
        *((name, False, rows) for name in ("wide_deep", "dnn") for rows in (1, 31, 32, 33, 700, 4097)),
        *(("wide_deep", True, rows) for rows in (1, 32, 65)),
    ],
)
def test_gradients_are_those_of_float64_autograd(kit: Kit, name: str, batch_norm: bool, rows: int) -> None:
    spec = kit.spec_for(name, SMALL)
    model = kit.randomize(create(name, spec, SMALL | {"batch_norm": batch_norm})).float()
    inputs = kit.random_inputs(spec, batch=rows)
    labels, weights = make_samples(rows)
    reference = copy.deepcopy(model).double()
    flat = inputs.flat.detach().double().requires_grad_()
    expected = reference(Inputs(spec, flat))
    loss = (F.binary_cross_entropy_with_logits(expected, labels.double(), reduction="none") * weights).mean()
    loss.backward()

    found, logits = take_step(model, inputs, labels, weights)

    assert found == pytest.approx(loss.item(), rel=1e-5, abs=1e-6)
    torch.testing.assert_close(logits.double(), expected, rtol=1e-4, atol=1e-5)
    assert inputs.flat.grad is not None
    torch.testing.assert_close(inputs.flat.grad.double(), flat.grad, rtol=1e-3, atol=1e-6)
    for (parameter, other), of in zip(
        zip(model.parameters(), reference.parameters(), strict=True), dict(model.named_parameters()), strict=True
    ):
        torch.testing.assert_close(parameter.grad.double(), other.grad, rtol=1e-3, atol=1e-5, msg=of)


@pytest.mark.parametrize("more", [{}, {"batch_norm": True, "dropout": 0.2}])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_results_do_not_depend_on_the_number_of_threads(kit: Kit, precision: Any, more: dict[str, Any]) -> None:
    set_tower_precision(precision)
    spec = kit.spec_for("wide_deep", SMALL)
    model = kit.randomize(create("wide_deep", spec, SMALL | more)).float()
    labels, weights = make_samples(1500)
    results = []
    for threads in (1, 2, 5):
        _native.set_threads(threads)
        torch.manual_seed(4)
        inputs = kit.random_inputs(spec, batch=1500)
        loss, logits = take_step(model, inputs, labels, weights)
        gradients = [p.grad.clone() for p in model.parameters()]
        assert inputs.flat.grad is not None
        results.append((torch.tensor(loss), logits, inputs.flat.grad.clone(), *gradients))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_dropout_and_norms_are_those_of_autograd(kit: Kit) -> None:
    """The same seed drops the same units on both ways, and both move the running statistics alike."""
    spec = kit.spec_for("wide_deep", SMALL)
    settings = SMALL | {"batch_norm": True, "dropout": 0.3}
    model = kit.randomize(create("wide_deep", spec, settings)).float()
    other, labels, weights = copy.deepcopy(model), *make_samples(300)
    inputs, again = kit.random_inputs(spec, batch=300), kit.random_inputs(spec, batch=300)
    torch.manual_seed(8)
    _, logits = take_step(model, inputs, labels, weights)
    torch.manual_seed(8)
    again.flat.requires_grad_()
    expected = other(again)
    (F.binary_cross_entropy_with_logits(expected, labels, reduction="none") * weights).mean().backward()
    torch.testing.assert_close(logits, expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(inputs.flat.grad, again.flat.grad, rtol=1e-4, atol=1e-7)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)
    for a, b in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b)


def test_what_only_autograd_can_do_is_left_to_it(kit: Kit) -> None:
    spec = kit.spec_for("wide_deep", SMALL)
    model: Any = create("wide_deep", spec, SMALL)
    step, inputs = TowerStep(model.tower_parts()), kit.random_inputs(spec)
    assert step.can_run(inputs)
    set_native_towers(False)
    assert not step.can_run(inputs)
    set_native_towers(True)
    model.wide.bias.requires_grad_(False)
    assert not step.can_run(inputs)
    other: Any = create("wide_deep", spec, SMALL | {"activation": "gelu"})
    assert not TowerStep(other.tower_parts()).can_run(inputs)


def test_a_model_that_is_more_than_its_tower_has_no_parts(kit: Kit) -> None:
    class Twice(WideDeep):
        def forward(self, inputs: Inputs) -> Tensor:
            return 2 * super().forward(inputs)

    spec = kit.spec_for("wide_deep", SMALL)
    assert Twice(spec, WideDeep.settings_class.model_validate(SMALL)).tower_parts() is None
    both = SMALL | {"wide": "both"}
    assert create("wide_deep", kit.spec_for("wide_deep", both), both).tower_parts() is None
    assert create("wide_deep", kit.spec_for("wide_deep", SMALL, labels=2), SMALL).tower_parts() is None
    assert create("wide_deep", kit.spec_for("wide_deep", SMALL, sequences=True), SMALL).tower_parts() is None
    assert create("deepfm", kit.spec_for("deepfm", SMALL), SMALL).tower_parts() is None
