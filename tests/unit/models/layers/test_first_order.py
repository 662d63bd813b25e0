"""The first-order part: each term can be left out, and it starts at zero."""

from __future__ import annotations

import torch

from elasticctr.models import Inputs, InputSpec
from elasticctr.models.layers.first_order import FirstOrder

SPEC = InputSpec(("a", "b"), (2, 2), dense_dim=1, linear=True, labels=2)
INPUTS = Inputs(SPEC, torch.arange(14.0).reshape(2, 7))


def test_each_part_can_be_left_out() -> None:
    for sparse, dense, expected in [
        (True, True, [[1 + 60, 1 + 61], [15 + 130, 15 + 131]]),
        (True, False, [[1, 2], [15, 16]]),
        (False, True, [[60, 61], [130, 131]]),
        (False, False, [[0, 1], [0, 1]]),
    ]:
        layer = FirstOrder(SPEC, sparse, dense)
        with torch.no_grad():
            layer.bias.copy_(torch.tensor([0.0, 1.0]))
            if layer.weight is not None:
                layer.weight.fill_(10.0)
        assert layer(INPUTS).tolist() == expected


def test_it_starts_at_zero() -> None:
    assert all((p == 0).all() for p in FirstOrder(SPEC).parameters())
