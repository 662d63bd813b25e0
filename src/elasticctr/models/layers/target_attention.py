"""Finds what in a sequence is relevant to the target: DIN's local activation unit, and multi-head attention.

Both read a query [B, dim], keys [B, T, dim] that are zero where `mask` [B, T] is False, and return zeros for a sequence
without values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elasticctr.models.layers.dice import Dice
from elasticctr.models.layers.linear import xavier_linear
from elasticctr.models.layers.mlp import ACTIVATIONS


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis, zero where the mask is False, even if it is False everywhere."""
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1).masked_fill(~mask, 0.0)


class LocalActivation(nn.Module):
    """[B, dim]: the sum of keys, each times MLP([query, key, query - key, query * key]) (Zhou et al., KDD 2018).

    The weights do not sum to 1 unless `softmax` is set: how much of a history is relevant is information.
    """

    def __init__(self, dim: int, hidden: Sequence[int], activation: str = "relu", softmax: bool = False) -> None:
        super().__init__()
        widths = [4 * dim, *hidden, 1]
        self.dim, self.softmax = dim, softmax
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.activations = nn.ModuleList(
            Dice(width) if activation == "dice" else ACTIVATIONS[activation]() for width in hidden
        )
        for layer in self.linears:
            assert isinstance(layer, nn.Linear)
            nn.init.normal_(layer.weight, std=1.0 / math.sqrt(layer.in_features))
            nn.init.zeros_(layer.bias)

    def forward(self, query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        scores = self.scores(query, keys, mask)
        weights = masked_softmax(scores, mask) if self.softmax else scores.masked_fill(~mask, 0.0)
        return torch.bmm(weights.unsqueeze(1), keys.to(weights.dtype)).squeeze(1)

    def scores(self, query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """[B, T] the MLP's score of each key; undefined for padding."""
        first = self.linears[0]
        assert isinstance(first, nn.Linear)
        # The first layer of [q, k, q - k, q * k] without concatenating them for every key.
        of_query, of_key, of_difference, of_product = torch.split(first.weight, self.dim, dim=1)
        by_sample = F.linear(query, of_query + of_difference, first.bias)
        of_both = torch.cat([of_key - of_difference, of_product], dim=1)
        if torch.compiler.is_compiling() and not self.training:
            both = torch.cat([keys, query.unsqueeze(1) * keys], dim=2)
            return self._rest(by_sample.unsqueeze(1) + F.linear(both, of_both)).squeeze(2)
        # Only for real keys, usually a small part of the padded tensor.
        owners, places = mask.nonzero(as_tuple=True)
        real = keys[owners, places]
        both = torch.cat([real, query[owners] * real], dim=1)
        x = self._rest(by_sample[owners] + F.linear(both, of_both)).squeeze(1)
        return x.new_zeros(mask.shape).index_put((owners, places), x)

    def _rest(self, x: Tensor) -> Tensor:
        for activation, linear in zip(self.activations, list(self.linears)[1:], strict=True):
            x = linear(activation(x))
        return x


class TargetAttention(nn.Module):
    """[B, heads * head_dim]: softmax attention of one query over keys, by several heads."""

    def __init__(self, query_dim: int, key_dim: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.out_features = heads * head_dim
        self.query = xavier_linear(query_dim, self.out_features)
        # A bias would add the same to all scores of a query.
        self.key = xavier_linear(key_dim, self.out_features, bias=False)
        self.value = xavier_linear(key_dim, self.out_features)

    def forward(self, query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        q = self.query(query).unflatten(1, (self.heads, self.head_dim))
        k = self.key(keys).unflatten(2, (self.heads, self.head_dim))
        v = self.value(keys).unflatten(2, (self.heads, self.head_dim))
        scores = torch.einsum("bhd,bthd->bht", q, k) / math.sqrt(self.head_dim)
        weights = masked_softmax(scores, mask.unsqueeze(1))
        return torch.einsum("bht,bthd->bhd", weights, v.to(weights.dtype)).flatten(1)
