"""Squeeze and excitation of fields (SENET of FiBiNET): scales every field by its importance in the sample.

z_i = mean of v_i; a = relu(W_2 relu(W_1 z)); v_i becomes a_i v_i.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from elasticctr.models.layers.linear import xavier_linear


class SqueezeExcitation(nn.Module):
    """[B, fields, K] → [B, fields, K]. The inner layer has fields / reduction values, at least one."""

    def __init__(self, fields: int, reduction: int) -> None:
        super().__init__()
        inner = max(1, fields // reduction)
        self.squeeze = xavier_linear(fields, inner, bias=False)
        self.excite = xavier_linear(inner, fields, bias=False)

    def forward(self, fields: Tensor) -> Tensor:
        weights = F.relu(self.excite(F.relu(self.squeeze(fields.mean(dim=2)))))
        return fields * weights.unsqueeze(2)
