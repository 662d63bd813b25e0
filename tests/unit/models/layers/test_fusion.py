"""Bilinear fusion equals loops."""

from __future__ import annotations

import pytest
import torch

from elasticctr.errors import ConfigError
from elasticctr.models.layers.fusion import BilinearFusion


@pytest.mark.parametrize(("heads", "out"), [(1, 1), (2, 1), (2, 3)])
def test_equals_loops(heads: int, out: int) -> None:
    fusion = BilinearFusion(4, 6, out, heads).double()
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(5, n, generator=generator, dtype=torch.float64) for n in (4, 6))
    expected = torch.empty(5, out, dtype=torch.float64)
    a, b = 4 // heads, 6 // heads
    for sample in range(5):
        for label in range(out):
            value = fusion.x.bias[label] + fusion.x.weight[label] @ x[sample] + fusion.y.weight[label] @ y[sample]
            for h in range(heads):
                for i in range(a):
                    for j in range(b):
                        value = value + x[sample, h * a + i] * fusion.weight[h, i, label * b + j] * y[sample, h * b + j]
            expected[sample, label] = value
    torch.testing.assert_close(fusion(x, y), expected, rtol=1e-12, atol=1e-12)


def test_heads_must_divide_both_widths() -> None:
    with pytest.raises(ConfigError, match="num_heads 3 must divide"):
        BilinearFusion(6, 4, heads=3)
