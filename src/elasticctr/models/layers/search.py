"""Stage one of reading a long sequence: selects a few of its values (Pi et al., SIM, CIKM 2020).

Selection has no gradient and no parameters: it compares the embeddings that stage two trains.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class SearchHits(NamedTuple):
    """`k` positions in each sample's sequence; the mask says which of them count."""

    places: Tensor  # [B, k] int64
    mask: Tensor  # [B, k]

    def take(self, values: Tensor) -> Tensor:
        """[B, T, dim] or [B, T] → the values at the positions."""
        if values.ndim == 2:
            return torch.gather(values, 1, self.places)
        return torch.gather(values, 1, self.places.unsqueeze(2).expand(-1, -1, values.shape[2]))


def soft_search(query: Tensor, keys: Tensor, mask: Tensor, k: int) -> SearchHits:
    """The k values with the largest inner product with the target; among equal (such as repeated) values the last."""
    # Summed value by value: a matrix product may round equal values differently, depending on their position.
    scores = (keys.detach() * query.detach().unsqueeze(1)).sum(dim=2).double()
    # Too little to change the order of two float32 numbers, enough to order equal ones, zeros too.
    places = torch.arange(mask.shape[1], device=mask.device, dtype=torch.float64)
    return _best(scores + scores.abs() * (places * 2.0**-42) + places * 1e-60, mask, k)


def hard_search(category: Tensor, categories: Tensor, mask: Tensor, k: int) -> SearchHits:
    """The k last values whose category is the target's.

    Categories come as rows of one table, [B, dim] and [B, T, dim]: the same category is the same row, float for float.
    A row of zeros (no value, or one without a row) is not a category and is never found.
    """
    wanted = category.detach().unsqueeze(1)
    is_same = (categories.detach() == wanted).all(dim=2) & (wanted != 0).any(dim=2) & mask
    places = torch.arange(mask.shape[1], device=mask.device, dtype=category.dtype)
    return _best(places.expand(mask.shape[0], -1), is_same, k)


def _best(scores: Tensor, mask: Tensor, k: int) -> SearchHits:
    lowest = torch.finfo(scores.dtype).min
    places = torch.topk(scores.masked_fill(~mask, lowest), min(k, mask.shape[1]), dim=1).indices
    return SearchHits(places, torch.gather(mask, 1, places))
