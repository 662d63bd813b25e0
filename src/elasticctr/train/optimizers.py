"""The optimizer of the dense parameters."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from elasticctr.train.dense_optimizer import DenseAdam
from elasticctr.train.job import DenseSettings


def make_optimizer(parameters: Iterable[nn.Parameter], settings: DenseSettings) -> torch.optim.Optimizer:
    rate, decay = settings.learning_rate, settings.weight_decay
    match settings.optimizer:
        case "adam":
            return DenseAdam(parameters, lr=rate, weight_decay=decay)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)
        case "adagrad":
            return torch.optim.Adagrad(parameters, lr=rate, weight_decay=decay, fused=True)
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate, weight_decay=decay, fused=True)
