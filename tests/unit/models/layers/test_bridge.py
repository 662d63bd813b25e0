"""Every bridge between two streams equals its formula."""

from __future__ import annotations

import torch

from elasticctr.models.layers.bridge import Bridge

X, Y = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]])


def test_product_and_sum() -> None:
    assert Bridge(2, "product")(X, Y).tolist() == [[3.0, -2.0]]
    assert Bridge(2, "sum")(X, Y).tolist() == [[4.0, 1.0]]


def test_concat() -> None:
    bridge = Bridge(2, "concat")
    with torch.no_grad():
        bridge.join.weight.copy_(torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]))
    assert bridge(X, Y).tolist() == [[4.0, 0.0]]


def test_attention_weighs_each_stream_by_itself() -> None:
    bridge = Bridge(2, "attention")
    with torch.no_grad():
        for part in (bridge.first, bridge.second):
            part.inner.weight.copy_(torch.eye(2))
        bridge.first.outer.weight.zero_()
        bridge.second.outer.weight.copy_(torch.tensor([[1e3, 0.0], [0.0, 0.0]]))
    # The first stream's columns count half each, of the second's only the first.
    torch.testing.assert_close(bridge(X, Y), torch.tensor([[0.5 + 3.0, 1.0]]))
