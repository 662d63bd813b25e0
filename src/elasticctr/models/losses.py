"""What training makes small: binary cross-entropy or focal loss on logits, and an L2 penalty on embeddings.

Everything is computed from log-sigmoids, so that logits of any size give finite losses and gradients.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from elasticctr.config import Settings
from elasticctr.models.inputs import Inputs


class LossSettings(Settings):
    kind: Literal["bce", "focal"] = Field("bce", description="bce: cross-entropy; focal: easy samples count less")
    positive_weight: float = Field(1.0, gt=0, description="weight of positive samples; above 1 raises predictions")
    label_smoothing: float = Field(0.0, ge=0.0, lt=1.0, description="e moves labels to e / 2 and 1 - e / 2")
    gamma: float = Field(2.0, ge=0.0, le=20.0, description="focal: how much less easy samples count; 0: not at all")
    embedding_l2: float = Field(0.0, ge=0.0, description="penalty on the squared embeddings a batch uses, per sample")


class Loss:
    """Mean loss over samples. A weight w counts a sample as w samples; the divisor stays the size of the batch, so
    that a batch of light samples makes a small step.
    """

    def __init__(self, settings: LossSettings) -> None:
        self.settings = settings

    def __call__(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """Scalar loss of logits [B] or [B, L], labels of as many elements, weights [B]."""
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        targets = labels.reshape(logits.shape).to(logits.dtype)
        if self.settings.label_smoothing > 0:
            targets = targets * (1 - self.settings.label_smoothing) + self.settings.label_smoothing / 2
        if weights is not None:
            weights = weights.to(logits.dtype).reshape(-1, *(1 for _ in logits.shape[1:]))
        if self.settings.kind == "focal":
            losses = self._focal(logits, targets)
            return (losses if weights is None else losses * weights).mean()
        ratio = self.settings.positive_weight
        scale = None if ratio == 1.0 else torch.tensor(ratio, dtype=logits.dtype, device=logits.device)
        return F.binary_cross_entropy_with_logits(logits, targets, weights, pos_weight=scale)

    def penalty(self, inputs: Inputs) -> Tensor | None:
        """L2 of the batch's embeddings, to be added to the loss; None if it is switched off."""
        if self.settings.embedding_l2 == 0:
            return None
        squares = inputs.embeddings.square().sum()
        for sequence in inputs.sequences.values():
            squares = squares + sequence.values.square().sum()
        return self.settings.embedding_l2 * squares / max(inputs.flat.shape[0], 1)

    def _focal(self, logits: Tensor, targets: Tensor) -> Tensor:
        # (1 - p)^gamma = exp(gamma log(1 - p)): no power of a number that rounds to zero.
        log_p, log_not_p = F.logsigmoid(logits), F.logsigmoid(-logits)
        positive = self.settings.positive_weight * targets * torch.exp(self.settings.gamma * log_not_p) * log_p
        negative = (1 - targets) * torch.exp(self.settings.gamma * log_p) * log_not_p
        return -(positive + negative)
