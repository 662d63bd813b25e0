"""Bilinear interactions equal loops over pairs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from elasticctr.models.layers.bilinear import Bilinear


def pairs_by_loops(layer: Bilinear, v: torch.Tensor) -> torch.Tensor:
    rows = []
    for sample in v:
        values = []
        for number, (i, j) in enumerate(itertools.combinations(range(v.shape[1]), 2)):
            matrix = layer.weight[{"all": 0, "each": i, "interaction": number}[layer.kind]]
            for k in range(v.shape[2]):
                values.append(sum(sample[i, n] * matrix[n, k] for n in range(v.shape[2])) * sample[j, k])
        rows.append(torch.stack(values))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", ["all", "each", "interaction"])
def test_equals_loops_over_pairs(kind: Any) -> None:
    layer = Bilinear(4, 3, kind).double()
    v = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    out = layer(v)
    assert out.shape == (2, layer.width)
    torch.testing.assert_close(out, pairs_by_loops(layer, v), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(layer, (v,))
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (ours,) = torch.autograd.grad((layer(v) * upstream).sum(), layer.weight)
    (naive,) = torch.autograd.grad((pairs_by_loops(layer, v) * upstream).sum(), layer.weight)
    torch.testing.assert_close(ours, naive, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "matrices"), [("all", 1), ("each", 4), ("interaction", 10)])
def test_number_of_matrices(kind: Any, matrices: int) -> None:
    assert Bilinear(5, 2, kind).weight.shape == (matrices, 2, 2)


def test_the_exported_form_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("all", "each", "interaction"):
        layer = Bilinear(4, 3, kind)
        v = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(2))
        plain = layer(v)
        with monkeypatch.context() as m:
            m.setattr(torch.compiler, "is_compiling", lambda: True)
            torch.testing.assert_close(layer(v), plain)
