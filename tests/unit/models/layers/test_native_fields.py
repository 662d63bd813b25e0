"""Native layers over fields against the formulas in float64, values and gradients, and where they do not run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from elasticctr.models.layers import native_fields
from elasticctr.models.layers.cin import CIN
from elasticctr.models.layers.native_tower import set_native_towers
from elasticctr.models.layers.self_attention import SelfAttention


def attend_by_formula(projected: Tensor, heads: int, head_dim: int, scale: float) -> Tensor:
    batch, fields, _ = projected.shape
    query, key, value, residual = projected.reshape(batch, fields, 4, heads, head_dim).unbind(2)
    scores = torch.softmax(scale * torch.einsum("bihd,bjhd->bhij", query, key), dim=3)
    return torch.relu(torch.einsum("bhij,bjhd->bihd", scores, value) + residual).flatten(2)


def mix_by_formula(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    return torch.einsum("hij,in,jn->hn", weight.reshape(len(weight), len(left), len(right)), left, right)


def check(function: Callable[..., Tensor], formula: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Values and all gradients of the native function are those of the formula in float64."""
    exact_inputs = [x.double().requires_grad_() for x in inputs]
    exact = formula(*exact_inputs)
    direction = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1))
    exact_gradients = torch.autograd.grad((exact * direction).sum(), exact_inputs)
    native_inputs = [x.clone().requires_grad_() for x in inputs]
    native = function(*native_inputs)
    torch.testing.assert_close(native, exact.float(), rtol=1e-5, atol=2e-5)
    gradients = torch.autograd.grad((native * direction).sum(), native_inputs)
    for found, expected in zip(gradients, exact_gradients, strict=True):
        tolerance = 1e-6 * max(1.0, float(expected.abs().max())) if expected.numel() else 0.0
        torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=10 * tolerance)


@pytest.mark.parametrize(
    ("batch", "fields", "heads", "head_dim"),
    [(1, 1, 1, 1), (16, 10, 2, 20), (37, 3, 3, 5), (65, 17, 1, 16), (130, 9, 2, 7)],
)
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_attention(batch: int, fields: int, heads: int, head_dim: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(batch)
    projected = torch.randn(batch, fields, 4 * heads * head_dim, generator=generator)
    check(
        lambda x: native_fields.attend(x, heads, head_dim, scale),
        lambda x: attend_by_formula(x, heads, head_dim, scale),
        projected,
    )


def test_attention_to_one_field_alone() -> None:
    """Scores far apart: all attention goes to the largest, and nothing overflows."""
    projected = torch.zeros(2, 3, 4)
    projected[:, :, 0] = 1e3  # queries
    projected[:, :, 1] = torch.tensor([-1e3, 0.0, 1e3])  # keys
    projected[:, :, 2] = torch.tensor([5.0, 6.0, 7.0])  # values
    assert native_fields.attend(projected, 1, 1, 1.0).tolist() == [[[7.0]] * 3] * 2


@pytest.mark.parametrize(
    ("left", "right", "out", "columns"), [(1, 1, 1, 1), (16, 10, 16, 700), (3, 4, 5, 512), (7, 9, 11, 33)]
)
def test_mixes_of_products(left: int, right: int, out: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(columns)
    inputs = [torch.randn(*shape, generator=generator) for shape in ((left, columns), (right, columns))]
    check(native_fields.mix_rows, mix_by_formula, *inputs, torch.randn(out, left * right, generator=generator))


def test_sums_over_more_columns_than_one_segment() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(*shape, generator=generator) for shape in ((2, 9000), (3, 9000), (4, 6))]
    check(native_fields.mix_rows, mix_by_formula, *inputs)


@pytest.mark.parametrize("layer", [SelfAttention(6, 2, 5), CIN(4, [5, 6, 3], split_half=True)])
def test_layers_are_the_same_without(layer: torch.nn.Module) -> None:
    x = torch.randn(33, 4, 6, generator=torch.Generator().manual_seed(0))
    results = []
    for is_native in (True, False):
        set_native_towers(is_native)
        try:
            y = layer(x)
            results.append([y, *torch.autograd.grad(y.sin().sum(), list(layer.parameters()))])
        finally:
            set_native_towers(True)
    for native, plain in zip(*results, strict=True):
        torch.testing.assert_close(native, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layer", [SelfAttention(6, 2, 5), CIN(4, [5, 3])])
def test_no_samples(layer: torch.nn.Module) -> None:
    layer.zero_grad()
    x = torch.empty(0, 4, 6, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert len(y) == 0
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert all(not p.grad.any() for p in layer.parameters() if p.grad is not None)


def test_only_float32_in_this_process_memory() -> None:
    x = torch.zeros(2, 3, 4)
    assert native_fields.can_run(x)
    assert not native_fields.can_run(x, x.double())
    assert not native_fields.can_run(x.to("meta"))
    set_native_towers(False)
    try:
        assert not native_fields.can_run(x)
    finally:
        set_native_towers(True)
