"""The dense part of PaddleRec's Wide&Deep in plain PyTorch, shared by the contenders built on torch."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from itertools import pairwise

import torch
from clicks import DENSE, DIM, LAYERS, SLOTS
from torch import Tensor, nn
from worker import THREADS

INPUTS = SLOTS * DIM + DENSE


def set_up(seed: int) -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(seed)


def make_tower(inputs: int = INPUTS) -> nn.Sequential:
    """inputs-512-256-128-32-1 with ReLU between, initialised as in PaddleRec."""
    widths = [inputs, *LAYERS, 1]
    layers: list[nn.Module] = []
    for narrow, wide in pairwise(widths):
        linear = nn.Linear(narrow, wide)
        nn.init.normal_(linear.weight, std=1 / math.sqrt(narrow))
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class WideDeep(nn.Module):
    """[B, slots, dim] embeddings and [B, 13] dense floats → [B] logits."""

    def __init__(self, dim: int = DIM) -> None:
        super().__init__()
        self.wide = nn.Linear(DENSE, 1)
        self.deep = make_tower(SLOTS * dim + DENSE)

    def forward(self, embeddings: Tensor, dense: Tensor) -> Tensor:
        return (self.deep(torch.cat([embeddings.flatten(1), dense], 1)) + self.wide(dense)).squeeze(1)


def autocast(precision: str) -> AbstractContextManager[None]:
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16")


def describe(is_compiled: bool) -> str:
    """torch's version, and the instructions compiled code uses."""
    if not is_compiled:
        return torch.__version__
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    return f"{torch.__version__}, {pick_vec_isa()}"
