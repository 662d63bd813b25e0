"""Cross layers equal their recursion, low-rank ones too."""

from __future__ import annotations

from typing import Any

import torch

from elasticctr.models.layers.cross import Cross, MixtureCross, VectorCross


def test_one_layer_by_hand() -> None:
    cross: Any = Cross(2, 1)
    with torch.no_grad():
        cross.full[0].weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        cross.full[0].bias.copy_(torch.tensor([0.5, -0.5]))
    # W x = [1*2 + 2*3, 3*2 + 4*3] = [8, 18]
    assert cross(torch.tensor([[2.0, 3.0]])).tolist() == [[2 * 8.5 + 2, 3 * 17.5 + 3]]


def test_full_rank_factors_equal_the_full_matrix() -> None:
    full: Any
    low: Any
    full, low = Cross(4, 3).double(), Cross(4, 3, rank=4).double()
    with torch.no_grad():
        for a, down, up in zip(full.full, low.down, low.up, strict=True):
            up.weight.copy_(a.weight)
            down.weight.copy_(torch.eye(4))
            up.bias.copy_(a.bias)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(low(x), full(x), rtol=1e-12, atol=1e-12)


def test_degree_grows_by_one_per_layer() -> None:
    """Without biases, layer n is a polynomial of degree n + 1: scaling the input shows it."""
    cross = Cross(3, 2).double()
    x = torch.randn(1, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = torch.stack([cross(t * x)[0, 0] for t in (0.0, 1.0, 2.0, 3.0, 4.0)])
    fourth = values[4] - 4 * values[3] + 6 * values[2] - 4 * values[1] + values[0]
    third = values[3] - 3 * values[2] + 3 * values[1] - values[0]
    assert abs(fourth) < 1e-10 * values.abs().max()
    assert abs(third) > 1e-3


def test_vector_crosses_equal_their_recursion() -> None:
    cross = VectorCross(4, 3).double()
    with torch.no_grad():
        cross.bias.normal_(generator=torch.Generator().manual_seed(2))
    x0 = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x0
    for weight, bias in zip(cross.weight, cross.bias, strict=True):
        x = x0 * (x @ weight).unsqueeze(1) + bias + x
    torch.testing.assert_close(cross(x0), x, rtol=1e-12, atol=1e-12)


def test_a_mixture_of_equal_experts_is_one_expert() -> None:
    one: Any
    many: Any
    one, many = MixtureCross(4, 2, rank=3, experts=1).double(), MixtureCross(4, 2, rank=3, experts=5).double()
    with torch.no_grad():
        for layer in range(2):
            many.down[layer].weight.copy_(one.down[layer].weight.repeat(5, 1))
            many.middle[layer].copy_(one.middle[layer].expand(5, -1, -1))
            many.up[layer].weight.copy_(one.up[layer].weight.repeat(1, 5))
            many.up[layer].bias.copy_(one.up[layer].bias)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(many(x), one(x), rtol=1e-12, atol=1e-12)
