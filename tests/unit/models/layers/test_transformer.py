"""A transformer block equals a loop over tokens and heads."""

from __future__ import annotations

import numpy as np
import torch

from elasticctr.models.layers.transformer import TransformerLayer


def normalise(x: np.ndarray, norm: torch.nn.LayerNorm) -> np.ndarray:
    x = (x - x.mean()) / np.sqrt(x.var() + norm.eps)
    return x * norm.weight.detach().numpy() + norm.bias.detach().numpy()


def linear(x: np.ndarray, layer: torch.nn.Linear) -> np.ndarray:
    return layer.weight.detach().numpy() @ x + layer.bias.detach().numpy()


def apply_by_loops(layer: TransformerLayer, x: np.ndarray) -> np.ndarray:
    """One sample's real tokens [T, dim]."""
    query, key, value = layer.projection.weight.detach().numpy().reshape(3, layer.heads, layer.head_dim, -1)
    result = []
    for token in x:
        read = []
        for h in range(layer.heads):
            scores = np.array([np.exp((query[h] @ token) @ (key[h] @ other) / np.sqrt(layer.head_dim)) for other in x])
            read.append(sum(s / scores.sum() * (value[h] @ other) for s, other in zip(scores, x, strict=True)))
        y = normalise(token + linear(np.concatenate(read), layer.output), layer.after_attention)
        inner = linear(y, layer.widen)
        result.append(normalise(y + linear(np.where(inner > 0, inner, 0.01 * inner), layer.narrow), layer.after_all))
    return np.stack(result)


def test_it_is_a_loop_over_tokens_and_heads() -> None:
    torch.manual_seed(3)
    layer = TransformerLayer(4, heads=2, head_dim=3, feed_forward=7).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    x, lengths = torch.randn(3, 5, 4, dtype=torch.float64), [5, 1, 3]
    result = layer(x, torch.arange(5) < torch.tensor(lengths)[:, None]).detach().numpy()
    for i, length in enumerate(lengths):
        np.testing.assert_allclose(result[i, :length], apply_by_loops(layer, x[i, :length].numpy()), rtol=1e-9)
