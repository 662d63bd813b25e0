"""The optimizer of the dense parameters."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch
from torch import nn

from elasticctr.train.dense_optimizer import DenseAdam
from elasticctr.train.job import DenseSettings


def make_optimizer(parameters: Iterable[nn.Parameter], settings: DenseSettings) -> torch.optim.Optimizer:
    _spare_the_compiler()
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


def _spare_the_compiler() -> None:
    """Keeps torch.optim from importing torch's compiler, two seconds of a start, only to shield these methods from it.

    Calls made from compiled code are shielded no longer; the learner compiles the model alone.
    """
    if "torch._dynamo" in sys.modules:
        return
    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
        shielded = getattr(getattr(torch.optim.Optimizer, name), "__wrapped__", None)
        if shielded is not None:
            vars(shielded).setdefault("__dynamo_disable", shielded)
