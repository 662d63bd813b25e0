"""Factorized interaction layers equal a calculation by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from elasticctr.errors import ConfigError
from elasticctr.models.layers.factorized import FactorizedBlock


def test_one_layer_by_hand() -> None:
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    x = torch.tensor([[2.0, 3.0]])  # a = [2, 3], b = [5, 4]
    for residual, hidden, expected in (("concat", 4, [2.0, 3.0, 10.0, 12.0]), ("sum", 2, [12.0, 15.0])):
        block: Any = FactorizedBlock(2, (hidden,), "sum" if residual == "sum" else "concat")
        with torch.no_grad():
            block.linears[0].weight.copy_(weight)
        assert block(x).tolist() == [expected]


def test_degree_doubles_with_each_layer() -> None:
    """Without biases, n layers are a polynomial of degree 2^n of a scaled input."""
    block = FactorizedBlock(3, (4, 2), "sum").double()
    x = torch.randn(1, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = torch.stack([block(t * x)[0, 0] for t in range(6)]).detach()
    differences = [values]
    for _ in range(5):
        differences.append(differences[-1][1:] - differences[-1][:-1])
    assert differences[4].abs().max() > 1e-6
    assert differences[5].abs().max() < 1e-9 * values.abs().max()


def test_norm_activation_and_dropout_follow_each_layer() -> None:
    block: Any = FactorizedBlock(3, (4, 2), "sum", dropout=0.5, batch_norm=True, activation="relu")
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
    assert (block(x) >= 0).all()
    assert (block(x) == 0).float().mean() > 0.5
    assert float(block.norms[1].num_batches_tracked) == 2
    block.eval()
    torch.testing.assert_close(block(x), block(x))


def test_odd_widths_cannot_be_halved() -> None:
    with pytest.raises(ConfigError, match="even widths"):
        FactorizedBlock(3, (5,), "concat")
