"""What every model owes its callers, whatever it computes."""

from __future__ import annotations

import pytest
import torch

from elasticctr.models import MODELS, Loss, LossSettings, create

TOWERS = {"dnn", "wide_deep", "deepfm", "dcnv2"}


@pytest.fixture(params=list(MODELS))
def made(request, kit):
    settings = {"hidden": [16, 8]} if request.param in TOWERS else {}
    spec = kit.spec_for(request.param, settings, sequences=request.param != "lr")
    return create(request.param, spec, settings, seed=3)


@pytest.mark.parametrize("batch", [0, 1, 33])
def test_one_logit_per_sample(kit, made, batch):
    assert made(kit.random_inputs(made.spec, batch)).shape == (batch,)


def test_a_sample_does_not_see_its_neighbours(kit, made):
    made = made.double()
    inputs = kit.random_inputs(made.spec, 6, dtype=torch.float64)
    all_of_them = made(inputs)
    alone = kit.random_inputs(made.spec, 6, dtype=torch.float64)
    alone.flat[:3] = 100.0
    for sequence in alone.sequences.values():
        sequence.values[:3] = 100.0
    torch.testing.assert_close(made(alone)[3:], all_of_them[3:], rtol=1e-12, atol=1e-12)


def test_every_column_and_every_parameter_gets_a_gradient(kit, made):
    kit.randomize(made).float()
    inputs = kit.random_inputs(made.spec, 64)
    inputs.flat.requires_grad_()
    for sequence in inputs.sequences.values():
        sequence.values.requires_grad_()
    labels = torch.arange(64) % 2
    Loss(LossSettings())(made(inputs), labels).backward()
    assert inputs.flat.grad is not None
    pooled = inputs.flat.grad[:, : made.spec.pooled_width]
    assert (pooled.abs().sum(dim=0) > 0).all(), "a slot is left out"
    for name, sequence in inputs.sequences.items():
        assert sequence.values.grad is not None, f"sequence {name} is left out"
        assert sequence.values.grad.abs().sum() > 0
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, f"{name} takes no part"
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.filterwarnings("ignore:TF32")
def test_bfloat16_autocast(kit, made):
    inputs = kit.random_inputs(made.spec, 64)
    inputs.flat.requires_grad_()
    exact = made(inputs)
    # Not oneDNN's kernels, which some virtual machines cannot run: it is the models' types that are looked at.
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", dtype=torch.bfloat16):
        logits = made(inputs)
    # Eight bits of mantissa: three digits are noise.
    torch.testing.assert_close(logits.float(), exact, rtol=0.05, atol=0.05 * float(exact.detach().abs().max()))
    loss = Loss(LossSettings())(logits, torch.ones(64))
    with torch.backends.mkldnn.flags(enabled=False):
        loss.backward()
    assert loss.dtype == torch.float32
    assert inputs.flat.grad is not None
    assert inputs.flat.grad.isfinite().all()
