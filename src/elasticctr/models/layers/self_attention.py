"""Fields that attend to each other (Song et al., AutoInt, CIKM 2019): multi-head self-attention with a residual."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elasticctr.models.layers import native_fields


class SelfAttention(nn.Module):
    """[B, fields, in_features] → [B, fields, heads * head_dim]: relu(attention + W x).

    Without `scale` scores are plain dot products, as in the paper; with it they are divided by sqrt(head_dim).
    """

    def __init__(self, in_features: int, heads: int, head_dim: int, scale: bool = False) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.out_features = heads * head_dim
        self.scale = head_dim**-0.5 if scale else 1.0
        # Queries, keys, values and the residual are one product.
        self.projection = nn.Linear(in_features, 4 * self.out_features, bias=False)
        for part in torch.split(self.projection.weight.detach(), self.out_features):
            nn.init.xavier_normal_(part)

    def forward(self, x: Tensor) -> Tensor:
        batch, fields, _ = x.shape
        projected = self.projection(x)
        if native_fields.can_run(projected):
            return native_fields.attend(projected, self.heads, self.head_dim, self.scale)
        *parts, residual = torch.split(projected, self.out_features, dim=2)
        query, key, value = (part.reshape(batch, fields, self.heads, self.head_dim).transpose(1, 2) for part in parts)
        read = F.scaled_dot_product_attention(query, key, value, scale=self.scale)
        return F.relu(read.transpose(1, 2).reshape(batch, fields, self.out_features) + residual)
