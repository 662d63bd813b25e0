"""Dice equals the formula of its paper."""

from __future__ import annotations

import torch

from elasticctr.models.layers.dice import Dice
from elasticctr.models.layers.mlp import MLP


def by_formula(x: torch.Tensor, alpha: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, eps: float) -> torch.Tensor:
    p = 1 / (1 + torch.exp(-(x - mean) / torch.sqrt(var + eps)))
    return p * x + (1 - p) * alpha * x


def test_it_is_the_formula_of_the_paper() -> None:
    dice = Dice(3).double()
    torch.nn.init.normal_(dice.alpha)
    x = torch.randn(50, 3, dtype=torch.float64)
    expected = by_formula(x, dice.alpha, x.mean(0), x.var(0, correction=0), dice.eps)
    torch.testing.assert_close(dice(x), expected)
    dice.eval()
    torch.testing.assert_close(dice.running_mean, 0.01 * x.mean(0))
    torch.testing.assert_close(dice(x), by_formula(x, dice.alpha, dice.running_mean, dice.running_var, dice.eps))


def test_one_vector_is_no_batch() -> None:
    dice = Dice(2)
    assert dice(torch.randn(1, 1, 2)).isfinite().all()
    assert dice.running_mean.eq(0).all()


def test_a_tower_takes_it_as_its_activation() -> None:
    tower = MLP(4, (5, 3), 1, activation="dice").double()
    x = torch.randn(9, 4, dtype=torch.float64)
    assert tower.dices is not None and len(tower.dices) == 2
    tower(x).sum().backward()
    assert all(dice.alpha.grad is not None for dice in tower.dices)
    first = tower.linears[0](x).detach()
    torch.testing.assert_close(tower.dices[0].running_mean, 0.01 * first.mean(0))
