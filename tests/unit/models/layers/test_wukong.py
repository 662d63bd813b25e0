"""A Wukong layer equals loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elasticctr.models.layers.wukong import WukongLayer


def layer_by_loops(layer: WukongLayer, x: np.ndarray) -> np.ndarray:
    mix = layer.mix.weight.detach().numpy()
    rank, linears, machines = layer.rank, layer.linears, layer.machines
    rows = []
    for sample in x:
        pairs = sample @ sample.T @ mix[:rank].T
        flat = pairs.reshape(-1)
        flat = (flat - flat.mean()) / np.sqrt(flat.var() + 1e-5)
        for i, linear in enumerate(layer.machine.layers()):
            flat = linear.weight.detach().numpy() @ flat + linear.bias.detach().numpy()
            flat = flat if i + 1 == len(layer.machine.layers()) else np.maximum(flat, 0)
        out = np.concatenate([flat.reshape(machines, -1), mix[rank : rank + linears] @ sample])
        out = out + (mix[rank + linears :] @ sample if layer.has_shortcut else sample)
        rows.append([(v - v.mean()) / np.sqrt(v.var() + 1e-5) for v in out])
    return np.array(rows)


@pytest.mark.parametrize(("machines", "linears"), [(2, 3), (2, 2)])
def test_equals_loops(machines: int, linears: int) -> None:
    layer = WukongLayer(5, 4, machines, linears, rank=3, hidden=(6,)).double()
    assert layer.has_shortcut == (machines + linears != 5)
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    np.testing.assert_allclose(layer(x).detach().numpy(), layer_by_loops(layer, x.numpy()), rtol=1e-9, atol=1e-12)
