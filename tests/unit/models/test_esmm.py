"""ESMM multiplies probabilities exactly, and unclicked samples teach the conversion head."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import create
from elasticctr.models.esmm import both

SETTINGS = {"dim": 2, "hidden": [3]}


def test_forward_and_gradients(kit: Kit) -> None:
    spec = kit.spec_for("esmm", SETTINGS, slots=("ad", "user"), dense_dim=1, labels=2)
    model = kit.randomize(create("esmm", spec, SETTINGS))
    inputs = kit.random_inputs(spec, 4, dtype=torch.float64)
    x = inputs.deep.numpy()
    click, conversion = (1 / (1 + np.exp(-kit.numpy_mlp(tower, x)[:, 0])) for tower in (model.click, model.conversion))
    scores = torch.sigmoid(model(inputs)).detach().numpy()
    np.testing.assert_allclose(scores, np.stack([click, click * conversion], axis=1), rtol=1e-12)
    heads = [torch.sigmoid(head).detach().numpy() for head in model.heads(inputs)]
    np.testing.assert_allclose(heads, [click, conversion], rtol=1e-12)
    assert kit.check_gradients(model, kit.random_inputs(spec, 2, dtype=torch.float64))


@pytest.mark.parametrize("a", [-1e4, -90.0, -1.0, 0.0, 3.0, 90.0, 1e4])
@pytest.mark.parametrize("b", [-1e4, -90.0, -2.0, 0.5, 90.0, 1e4])
def test_the_product_of_probabilities_is_exact_and_finite_for_any_logits(a: float, b: float) -> None:
    from decimal import Decimal, getcontext

    getcontext().prec = 60
    odds = 1 / (Decimal(-a).exp() + Decimal(-b).exp() + Decimal(-a - b).exp())
    x, y = (torch.tensor(z, requires_grad=True) for z in (a, b))
    logit = both(x, y)
    assert logit.item() == pytest.approx(float(odds.ln()), rel=1e-6, abs=1e-6)
    logit.backward()
    # Of the logits' size in float32.
    assert x.grad is not None and y.grad is not None
    assert 0 <= x.grad.item() <= 1.001
    assert 0 <= y.grad.item() <= 1.001


def test_unclicked_samples_teach_the_conversion_head(kit: Kit) -> None:
    spec = kit.spec_for("esmm", SETTINGS, labels=2)
    model = kit.randomize(create("esmm", spec, SETTINGS))
    logits = model(kit.random_inputs(spec, 8, dtype=torch.float64))
    torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.zeros(8, 2).double()).backward()
    assert all(p.grad.abs().sum() > 0 for p in model.conversion.parameters() if p.numel() == 1)


@pytest.mark.parametrize("labels", [1, 3])
def test_other_numbers_of_labels_are_refused(kit: Kit, labels: int) -> None:
    with pytest.raises(ConfigError, match=r"'esmm' needs 2 labels"):
        create("esmm", kit.spec_for("esmm", SETTINGS, labels=labels), SETTINGS)
