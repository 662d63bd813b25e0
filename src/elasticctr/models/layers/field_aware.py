"""Field-aware pairs: Σ <v_i for j, v_j for i> x_i x_j over all pairs of fields.

Juan et al., Field-aware Factorization Machines for CTR Prediction, RecSys 2016. A field has one vector for each other
field, in the order of fields; dense floats are the last fields, and their vectors are parameters.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class FieldAwarePairs(nn.Module):
    """Embeddings [B, slots * (fields - 1) * K] and dense floats [B, dense] → [B, 1]; fields = slots + dense."""

    others: Tensor

    def __init__(self, slots: int, dense: int, dim: int) -> None:
        super().__init__()
        fields = slots + dense
        self.shape = (slots, fields - 1, dim)
        self.dense_vectors = nn.Parameter(torch.empty(dense, fields - 1, dim)) if dense else None
        if self.dense_vectors is not None:
            nn.init.normal_(self.dense_vectors, std=0.01)
        # Which vector of field i is the one for field j; arbitrary for j = i.
        place = torch.arange(fields)[None, :] - (torch.arange(fields)[None, :] > torch.arange(fields)[:, None]).long()
        place.clamp_(max=fields - 2)
        self.register_buffer("others", place[slots:, slots:], persistent=False)

    def forward(self, embeddings: Tensor, dense: Tensor) -> Tensor:
        total = slot_pairs(embeddings.reshape(-1, *self.shape))
        if self.dense_vectors is None:
            return total
        dense = dense.detach() if self.training else dense  # as in FirstOrder
        slots, count = self.shape[0], dense.shape[1]
        eye = torch.eye(count, dtype=embeddings.dtype, device=embeddings.device)
        # A slot's vectors for dense floats are its last ones, a dense float's vectors for slots its first ones: as a
        # matrix [slots, fields - 1, K, dense] that is zero elsewhere, so that embeddings are read in place.
        towards = self.dense_vectors[:, :slots].transpose(0, 1).unsqueeze(3) * eye[:, None, :]
        matrix = torch.nn.functional.pad(towards, (0, 0, 0, 0, slots - 1, 0)).reshape(-1, count)
        own = self.dense_vectors[torch.arange(count, device=dense.device)[:, None], self.others]
        among = (own * own.transpose(0, 1)).sum(dim=2) * (1 - eye)
        return total + ((embeddings @ matrix + 0.5 * dense @ among) * dense).sum(dim=1, keepdim=True)


def slot_pairs(vectors: Tensor) -> Tensor:
    """[B, 1]: the sum over pairs of slots of `vectors` [B, slots, others, K]; vectors past slots - 1 take no part."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return cast(Tensor, _SlotPairs.apply(vectors))  # type: ignore[no-untyped-call]
    return _sum(vectors)


def _sum(vectors: Tensor) -> Tensor:
    total = vectors.new_zeros(vectors.shape[0])
    for i in range(vectors.shape[1] - 1):
        own, partners = _facing(vectors, i)
        total = total + (own * partners).flatten(1).sum(dim=1)
    return total.unsqueeze(1)


def _facing(vectors: Tensor, i: int) -> tuple[Tensor, Tensor]:
    """Slot i's vectors for the slots after it, and theirs for slot i: two views [B, slots - 1 - i, K]."""
    slots = vectors.shape[1]
    return vectors[:, i, i : slots - 1], vectors[:, i + 1 :, i]


class _SlotPairs(torch.autograd.Function):
    """Writes the gradient directly into place: each vector's gradient is the vector it is multiplied with."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        ctx.save_for_backward(vectors)
        return _sum(vectors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (vectors,) = ctx.saved_tensors
        batch, slots, others, dim = vectors.shape
        result = torch.empty(batch, slots, others, dim, dtype=vectors.dtype, device=vectors.device)
        result[:, :, slots - 1 :].zero_()
        scale = gradient.to(vectors.dtype).reshape(-1, 1, 1)
        for i in range(slots - 1):
            own, partners = _facing(vectors, i)
            to_own, to_partners = _facing(result, i)
            torch.mul(partners, scale, out=to_own)
            torch.mul(own, scale, out=to_partners)
        return result
