"""Squeeze and excitation equals a calculation by hand."""

from __future__ import annotations

import torch

from elasticctr.models.layers.squeeze import SqueezeExcitation


def test_by_hand() -> None:
    layer = SqueezeExcitation(3, 3)
    with torch.no_grad():
        layer.squeeze.weight.copy_(torch.tensor([[1.0, 2.0, 0.0]]))
        layer.excite.weight.copy_(torch.tensor([[1.0], [-1.0], [0.5]]))
    fields = torch.tensor([[[1.0, 3.0], [0.0, 1.0], [4.0, 4.0]]])
    # Means 2, 0.5, 4 → squeezed 2 + 1 = 3 → weights 3, 0 (relu), 1.5.
    assert layer(fields).tolist() == [[[3.0, 9.0], [0.0, 0.0], [6.0, 6.0]]]


def test_the_inner_layer_has_at_least_one_value() -> None:
    assert SqueezeExcitation(10, 3).squeeze.out_features == 3
    assert SqueezeExcitation(2, 5).squeeze.out_features == 1
