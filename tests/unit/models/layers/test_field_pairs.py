"""Pairs of fields are in the documented order, and their written gradient equals autograd."""

from __future__ import annotations

import itertools

import pytest
import torch

from elasticctr.models.layers.field_pairs import PairDots, WeightedPairs


def random_fields(batch: int = 3, count: int = 4, dim: int = 2) -> torch.Tensor:
    return torch.randn(batch, count, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_dots_row_after_row_of_the_lower_triangle() -> None:
    fields = random_fields()
    expected = [[float(s[i] @ s[j]) for i in range(4) for j in range(i)] for s in fields]
    dots = PairDots(4)
    assert dots.pairs == 6
    torch.testing.assert_close(dots(fields), torch.tensor(expected, dtype=torch.float64))
    with torch.no_grad():
        torch.testing.assert_close(dots(fields), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("batch", [0, 3])
def test_the_written_gradient_of_dots_is_autograds(batch: int) -> None:
    fields = random_fields(batch).requires_grad_()
    weights = torch.randn(batch, 6, dtype=torch.float64)
    dots = PairDots(4)
    (written,) = torch.autograd.grad((dots(fields) * weights).sum(), fields)
    plain = torch.bmm(fields, fields.transpose(1, 2)).flatten(1)[:, dots.places]
    (expected,) = torch.autograd.grad((plain * weights).sum(), fields)
    torch.testing.assert_close(written, expected, rtol=1e-12, atol=1e-12)


def test_weights_are_in_the_order_of_combinations() -> None:
    pairs = WeightedPairs(4).double()
    with torch.no_grad():
        pairs.weight.copy_(torch.arange(1.0, 7.0))
    fields = random_fields()
    expected = [[sum(w * float(a @ b) for w, (a, b) in enumerate(itertools.combinations(s, 2), 1))] for s in fields]
    torch.testing.assert_close(pairs(fields), torch.tensor(expected, dtype=torch.float64))
