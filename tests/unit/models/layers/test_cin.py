"""The compressed interaction network equals a calculation by hand."""

from __future__ import annotations

import pytest
import torch

from elasticctr.models.layers import cin
from elasticctr.models.layers.cin import CIN, mix_products


def test_one_layer_by_hand() -> None:
    network = CIN(2, [1])
    with torch.no_grad():
        network.weights[0].copy_(torch.tensor([[1.0, 10.0, 100.0, 1000.0]]))
        network.biases[0].fill_(0.5)
    # Columns (2, 3) and (1, 5): 1*4 + 10*6 + 100*6 + 1000*9 and 1*1 + 10*5 + 100*5 + 1000*25, and twice the bias.
    assert network(torch.tensor([[[2.0, 1.0], [3.0, 5.0]]])).tolist() == [[9664.0 + 25551.0 + 1.0]]


def test_halves() -> None:
    assert CIN(5, [4, 6, 3]).out_features == 13
    split = CIN(5, [4, 6, 3], split_half=True)
    assert split.out_features == 2 + 3 + 3
    assert [tuple(weight.shape) for weight in split.weights] == [(4, 25), (6, 10), (3, 15)]
    assert CIN(5, [1, 3], split_half=True).weights[1].shape == (3, 5), (
        "one map cannot be halved: it is put out and fed on"
    )


@pytest.mark.parametrize("piece", [1, 24, 30, 10_000])
def test_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    generator = torch.Generator().manual_seed(0)
    left, right, weight = (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((7, 3), (7, 4), (5, 12))
    )
    monkeypatch.setattr(cin, "_PIECE", piece)
    results = []
    for function in (mix_products, lambda a, b, w: torch.einsum("hij,ni,nj->nh", w.view(5, 3, 4), a, b)):
        mixed = function(left, right, weight)
        results.append([mixed, *torch.autograd.grad((mixed**2).sum(), (left, right, weight))])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
