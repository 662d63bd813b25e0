"""Gated crosses equal a calculation by hand; with open gates they are a cross network."""

from __future__ import annotations

from typing import Any

import torch

from elasticctr.models.layers.cross import Cross
from elasticctr.models.layers.gated_cross import GatedCross


def test_one_layer_by_hand() -> None:
    cross: Any = GatedCross(2, 1)
    with torch.no_grad():
        cross.cross[0].weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        cross.cross[0].bias.copy_(torch.tensor([0.5, -0.5]))
        cross.gate[0].weight.copy_(torch.zeros(2, 2))
    # W x = [8, 18], and a gate of zeros lets half of it through.
    assert cross(torch.tensor([[2.0, 3.0]])).tolist() == [[2 * 8.5 / 2 + 2, 3 * 17.5 / 2 + 3]]


def test_open_gates_are_a_cross_network() -> None:
    gated: Any
    plain: Any
    gated, plain = GatedCross(3, 2).double(), Cross(3, 2).double()
    x = torch.rand(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
    with torch.no_grad():
        for a, b in zip(plain.full, gated.cross, strict=True):
            a.weight.copy_(b.weight.abs_())
        for gate in gated.gate:
            gate.weight.fill_(1e3)
    torch.testing.assert_close(gated(x), plain(x), rtol=1e-12, atol=1e-12)
