"""What training makes small: binary cross-entropy or focal loss on logits, and an L2 penalty on embeddings.

Everything is computed from log-sigmoids, so that logits of any size give finite losses and gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from elasticctr import _native
from elasticctr.models.inputs import Inputs
from elasticctr.models.loss_settings import LossSettings


class Loss:
    """Mean loss over samples. A weight w counts a sample as w samples; the divisor stays the size of the batch, so
    that a batch of light samples makes a small step.
    """

    def __init__(self, settings: LossSettings) -> None:
        self.settings = settings
        # Weighted binary cross-entropy and nothing else.
        self.is_plain = settings.kind == "bce" and settings.positive_weight == 1 and settings.label_smoothing == 0

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

    def backward(self, logits: Tensor, labels: Tensor, weights: Tensor, penalty: Tensor | None = None) -> float:
        """Goes back from the loss of float32 logits (and a penalty added to it), and returns the loss."""
        if self.is_plain and penalty is None and logits.ndim == 1 and logits.is_cpu and logits.is_contiguous():
            gradient = torch.empty_like(logits)
            loss = _native.bce_gradient(
                logits.data_ptr(),
                labels.data_ptr(),
                labels.stride(0),
                weights.data_ptr(),
                len(logits),
                gradient.data_ptr(),
            )
            logits.backward(gradient)  # type: ignore[no-untyped-call]
            return loss
        total = self(logits, labels, weights)
        (total if penalty is None else total + penalty).backward()  # type: ignore[no-untyped-call]
        return float(total.detach())

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
