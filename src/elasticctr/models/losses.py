"""The loss of a batch: the weighted losses of its labels, and a penalty on embeddings.

Some losses have parameters of their own (weights by uncertainty, the second logits of JRC). They are trained and saved
with the model's but are not part of it and are not served.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elasticctr import _native
from elasticctr.errors import ConfigError
from elasticctr.models import pointwise_losses as pointwise
from elasticctr.models import ranking_losses as ranking
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.layers.mlp import MLP
from elasticctr.models.loss_settings import LossSettings


class Loss(nn.Module):
    """Mean loss over samples and labels. A weight w counts a sample as w samples; the divisor stays the size of the
    batch, so that a batch of light samples makes a small step.
    """

    def __init__(
        self, settings: LossSettings, labels: Sequence[str] = ("label",), spec: InputSpec | None = None
    ) -> None:
        """`spec` is that of the model; only `jrc` reads inputs."""
        super().__init__()
        self.settings = settings
        self.labels = tuple(labels)
        late = settings.delayed_label or self.labels[-1]
        self._late = self.labels.index(late) if settings.delayed != "none" else -1
        weights = settings.task_weights
        self._task_weights = [weights.get(label, 1.0) for label in self.labels] if isinstance(weights, dict) else None
        self.log_variances = None if self._task_weights is not None else nn.Parameter(torch.zeros(len(self.labels)))
        self.base: MLP | None = None
        if settings.kind == "jrc":
            if spec is None:
                raise ConfigError("loss kind jrc reads the model's inputs; make it with Loss(settings, labels, spec)")
            self.base = MLP(deep_width(spec), settings.jrc_hidden, len(self.labels))
        # Only weighted binary cross-entropy.
        self.is_plain = (
            settings.kind == "bce"
            and settings.positive_weight == 1
            and settings.label_smoothing == 0
            and settings.pairwise == 0
            and settings.negative_rate == 1
            and settings.delayed == "none"
            and self._task_weights is not None
            and all(weight == 1 for weight in self._task_weights)
        )

    @property
    def ranks(self) -> bool:
        """Whether samples are compared within their group."""
        return self.settings.kind == "jrc" or self.settings.pairwise > 0

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
        groups: Tensor | None = None,
        inputs: Inputs | None = None,
    ) -> Tensor:
        """Scalar loss of logits [B] or [B, L], labels of as many elements, weights [B], groups [B] numbered from 0."""
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        columns = logits.unsqueeze(1) if logits.ndim == 1 else logits
        targets = labels.reshape(columns.shape).to(columns.dtype)
        if weights is None:
            weights = columns.new_ones(len(columns))
        weights = weights.to(columns.dtype).reshape(-1)
        if groups is None and self.ranks:
            groups = torch.zeros(len(columns), dtype=torch.int64, device=columns.device)
        base = None if self.base is None or inputs is None else self.base(deep_features(inputs))
        each = torch.stack(
            [
                self._of_label(k, columns[:, k], targets, weights, groups, None if base is None else base[:, k])
                for k in range(columns.shape[1])
            ]
        )
        return self._weigh(each)

    def _weigh(self, each: Tensor) -> Tensor:
        if self.log_variances is not None:
            # Kendall et al., 2018: a loss is weighted by 1 / variance, and the variance's logarithm is added.
            s = self.log_variances.to(each.dtype)
            return (torch.exp(-s) * each + s / 2).mean()
        if self._task_weights is None or all(weight == 1 for weight in self._task_weights):
            return each.mean()
        return (each * each.new_tensor(self._task_weights)).mean()

    def _of_label(
        self, k: int, logits: Tensor, targets: Tensor, weights: Tensor, groups: Tensor | None, base: Tensor | None
    ) -> Tensor:
        settings, y, weights = self.settings, targets[:, k], self._weigh_samples(k, targets, weights)
        if settings.label_smoothing > 0:
            y = y * (1 - settings.label_smoothing) + settings.label_smoothing / 2
        seen = self._as_seen(k, logits)
        if settings.kind == "focal":
            losses = pointwise.focal(seen, y, settings.positive_weight, settings.gamma)
        elif settings.delayed == "fnw" and k == self._late:
            losses = pointwise.fake_negative_weighted(seen, y, settings.positive_weight)
        else:
            losses = pointwise.cross_entropy(seen, y, settings.positive_weight)
        if groups is None:
            return (losses * weights).mean()
        if settings.kind == "jrc":
            second = torch.zeros_like(seen) if base is None else base.to(seen.dtype)
            ranked = ranking.generative(seen, second, y, groups)
            losses = settings.calibration * losses + (1 - settings.calibration) * ranked
        loss = (losses * weights).mean()
        if settings.pairwise > 0:
            pairs = ranking.pairwise(logits, targets[:, k], weights, groups, settings.pairs_per_positive)
            loss = loss + settings.pairwise * pairs
        return loss

    def _weigh_samples(self, k: int, targets: Tensor, weights: Tensor) -> Tensor:
        if self.settings.negative_rate == 1 or k == 0:
            return weights
        # Negative sampling removed samples without the first label, whatever this label is: the rest stand for more.
        return weights * torch.where(targets[:, 0] > 0.5, 1.0, 1.0 / self.settings.negative_rate)

    def _as_seen(self, k: int, logits: Tensor) -> Tensor:
        """Logits of the events in the log, from those of the true events."""
        if self.settings.delayed == "fnc" and k == self._late:
            logits = pointwise.with_fake_negatives(logits)
        if self.settings.negative_rate < 1 and k == 0:
            logits = pointwise.with_sampled_negatives(logits, self.settings.negative_rate)
        return logits

    def backward(
        self,
        logits: Tensor,
        labels: Tensor,
        weights: Tensor,
        inputs: Inputs | None = None,
        groups: Tensor | None = None,
        auxiliary: Tensor | None = None,
    ) -> float:
        """Backpropagates the loss of float32 logits, the penalty of their inputs, and the model's auxiliary losses.
        Returns the loss of the logits.
        """
        others = [] if auxiliary is None else [self.of_auxiliary(auxiliary, labels, weights)]
        penalty = None if inputs is None else self.penalty(inputs)
        if penalty is not None:
            others.append(penalty)
        if self.is_plain and not others and logits.ndim == 1 and logits.is_cpu and logits.is_contiguous():
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
        total: Tensor = self(logits, labels, weights, groups, inputs)
        torch.stack([total, *others]).sum().backward()  # type: ignore[no-untyped-call]
        return float(total.detach())

    def of_auxiliary(self, losses: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Mean of a model's auxiliary losses, of samples [B] or of samples and labels [B, L]. Samples and labels have
        the same weights as in the loss of the logits.
        """
        losses = losses.float() if losses.dtype in (torch.bfloat16, torch.float16) else losses
        weights = weights.to(losses.dtype).reshape(-1)
        count = len(self.labels)
        if losses.ndim == 1 and count > 1:
            return (losses * weights).mean()
        columns, targets = losses.reshape(-1, count), labels.reshape(-1, count)
        if self.log_variances is not None:
            factors = torch.exp(-self.log_variances.detach()).to(losses.dtype)
        else:
            factors = losses.new_tensor(self._task_weights)
        each = [(columns[:, k] * self._weigh_samples(k, targets, weights)).mean() for k in range(count)]
        return (torch.stack(each) * factors).mean()

    def penalty(self, inputs: Inputs) -> Tensor | None:
        """L2 penalty of the batch's embeddings, to be added to the loss; None if it is off."""
        if self.settings.embedding_l2 == 0:
            return None
        squares = inputs.embeddings.square().sum()
        for sequence in inputs.sequences.values():
            squares = squares + sequence.values.square().sum()
        return self.settings.embedding_l2 * squares / max(inputs.flat.shape[0], 1)
