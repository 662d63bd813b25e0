"""The linear part of lr, fm, wide_deep and deepfm: bias + linear weights of slots + weighted dense floats."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec


class FirstOrder(nn.Module):
    """Inputs → [B, labels]. Starts at zero: it is convex, and the model then starts from its other parts alone."""

    def __init__(self, spec: InputSpec, sparse: bool = True, dense: bool = True) -> None:
        super().__init__()
        self.sparse = sparse and spec.linear_width > 0
        self.bias = nn.Parameter(torch.zeros(spec.labels))
        has_dense = dense and spec.dense_dim > 0
        self.weight = nn.Parameter(torch.zeros(spec.labels, spec.dense_dim)) if has_dense else None

    def forward(self, inputs: Inputs) -> Tensor:
        if self.weight is not None:
            # Dense floats are data: training needs no gradient of them, and without it the tower's is passed on
            # without a copy. Explanations need it, for models in evaluation mode.
            dense = inputs.dense.detach() if self.training else inputs.dense
            logits = nn.functional.linear(dense, self.weight, self.bias)
        else:
            logits = self.bias.expand(inputs.flat.shape[0], -1)
        if self.sparse:
            # A feasign has one linear weight, so all labels share it.
            logits = logits + inputs.linear.sum(dim=1, keepdim=True)
        return logits
