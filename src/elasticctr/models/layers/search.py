"""Stage one of reading a long sequence: which few of its values to look at (Pi et al., SIM, CIKM 2020).

Choosing has no gradient and no parameters: the embeddings that stage two trains are what is searched with.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class SearchHits(NamedTuple):
    """Of each sample, `k` places of the sequence; the mask says which of them count."""

    places: Tensor  # [B, k] int64
    mask: Tensor  # [B, k]

    def take(self, values: Tensor) -> Tensor:
        """[B, T, dim] or [B, T] → what stands at the places."""
        if values.ndim == 2:
            return torch.gather(values, 1, self.places)
        return torch.gather(values, 1, self.places.unsqueeze(2).expand(-1, -1, values.shape[2]))


def soft_search(query: Tensor, keys: Tensor, mask: Tensor, k: int) -> SearchHits:
    """The k values with the largest inner product with the target; of equal ones, such as repeated values, the last."""
    # Summed value by value: a matrix product may round equal values differently, depending on where they stand.
    scores = (keys.detach() * query.detach().unsqueeze(1)).sum(dim=2).double()
    # Too little to change the order of two float32 numbers, enough to order equal ones, zeros too.
    places = torch.arange(mask.shape[1], device=mask.device, dtype=torch.float64)
    return _best(scores + scores.abs() * (places * 2.0**-42) + places * 1e-60, mask, k)


def hard_search(category: Tensor, categories: Tensor, mask: Tensor, k: int) -> SearchHits:
    """The k last values whose category is the target's.

    Categories come as rows of one table, [B, dim] and [B, T, dim]: the same category is the same row, float for float.
    A row of zeros is no category (no value, or one without a row) and is never found.
    """
    wanted = category.detach().unsqueeze(1)
    is_same = (categories.detach() == wanted).all(dim=2) & (wanted != 0).any(dim=2) & mask
    places = torch.arange(mask.shape[1], device=mask.device, dtype=category.dtype)
    return _best(places.expand(mask.shape[0], -1), is_same, k)


def _best(scores: Tensor, mask: Tensor, k: int) -> SearchHits:
    lowest = torch.finfo(scores.dtype).min
    places = torch.topk(scores.masked_fill(~mask, lowest), min(k, mask.shape[1]), dim=1).indices
    return SearchHits(places, torch.gather(mask, 1, places))
