"""The block of MaskNet (Wang et al., DLP-KDD 2021): relu(LN(W (mask(features) * x))).

The mask is a two-layer perceptron of the features, so each sample decides which parts of x count.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from elasticctr.models.layers.linear import xavier_linear
from elasticctr.models.layers.mlp import MLP


class MaskBlock(nn.Module):
    """(features [B, F], x [B, width]) → [B, out]. The mask's inner layer is `reduction` times as wide as x."""

    def __init__(
        self, features: int, width: int, out: int, reduction: float = 1.0, dropout: float = 0.0, layer_norm: bool = True
    ) -> None:
        super().__init__()
        self.mask = MLP(features, (max(1, int(width * reduction)),), width)
        self.hidden = xavier_linear(width, out, bias=not layer_norm)
        self.norm = nn.LayerNorm(out) if layer_norm else None
        self.dropout = nn.Dropout(dropout) if dropout > 0 else None

    def forward(self, features: Tensor, x: Tensor) -> Tensor:
        hidden = self.hidden(self.mask(features) * x)
        hidden = F.relu(hidden if self.norm is None else self.norm(hidden))
        return hidden if self.dropout is None else self.dropout(hidden)
