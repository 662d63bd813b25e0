"""Self-attention equals its formula and ignores the order of fields."""

from __future__ import annotations

import pytest
import torch

from elasticctr.models.layers.self_attention import SelfAttention


@pytest.mark.parametrize(("scale", "divisor"), [(False, 1.0), (True, 2.0)])
def test_it_is_attention_by_the_formula(scale: bool, divisor: float) -> None:
    layer = SelfAttention(3, heads=2, head_dim=4, scale=scale).double()
    x = torch.randn(5, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = layer.projection(x).reshape(5, 6, 4, 2, 4).permute(2, 0, 3, 1, 4)  # [part, B, head, field, width]
    scores = torch.softmax(torch.einsum("bhid,bhjd->bhij", parts[0], parts[1]) / divisor, dim=3)
    expected = torch.relu(torch.einsum("bhij,bhjd->bhid", scores, parts[2]) + parts[3])
    torch.testing.assert_close(layer(x), expected.transpose(1, 2).reshape(5, 6, 8), rtol=1e-10, atol=1e-12)


def test_the_order_of_fields_does_not_matter() -> None:
    layer = SelfAttention(3, heads=1, head_dim=4)
    x = torch.randn(2, 5, 3)
    order = torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])
