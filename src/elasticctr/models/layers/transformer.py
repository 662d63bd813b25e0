"""One layer of a transformer over tokens, some of which are padding."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from elasticctr.models.layers.linear import xavier_linear


class TransformerLayer(nn.Module):
    """[B, T, dim] → the same: x ← norm(x + attention(x)), x ← norm(x + W leaky_relu(W x)).

    REQUIRES: each sample has a token, that is a True in `mask` [B, T]. Tokens where the mask is False are not attended
    to, and their outputs are undefined.
    """

    def __init__(self, dim: int, heads: int, head_dim: int, feed_forward: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.projection = xavier_linear(dim, 3 * heads * head_dim, bias=False)
        self.output = xavier_linear(heads * head_dim, dim)
        self.widen = xavier_linear(dim, feed_forward)
        self.narrow = xavier_linear(feed_forward, dim)
        self.after_attention, self.after_all = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        # [B, T, 3 * heads * width] → three of [B, heads, T, width]
        split = self.projection(x).unflatten(2, (3, self.heads, self.head_dim)).permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(split[0], split[1], split[2], attn_mask=mask[:, None, None, :])
        x = self.after_attention(x + self.dropout(self.output(read.transpose(1, 2).flatten(2))))
        changed: Tensor = self.after_all(x + self.dropout(self.narrow(F.leaky_relu(self.widen(x)))))
        return changed
