"""Mask blocks equal NumPy."""

from __future__ import annotations

import numpy as np
import torch

from elasticctr.models.layers.mask_block import MaskBlock


def test_equals_numpy() -> None:
    block = MaskBlock(3, 4, 5, reduction=2.0).double()
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    first, second = (layer.weight.detach().numpy() for layer in block.mask.layers())
    assert first.shape == (8, 3)
    mask = np.maximum(features.numpy() @ first.T, 0) @ second.T
    hidden = (mask * x.numpy()) @ block.hidden.weight.detach().numpy().T
    hidden = (hidden - hidden.mean(axis=1, keepdims=True)) / np.sqrt(hidden.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(block(features, x).detach().numpy(), np.maximum(hidden, 0), rtol=1e-9, atol=1e-12)


def test_without_layer_norm_the_hidden_layer_has_a_bias() -> None:
    block = MaskBlock(3, 4, 5, layer_norm=False)
    assert block.norm is None
    assert block.hidden.bias is not None
    assert MaskBlock(3, 4, 5).hidden.bias is None
