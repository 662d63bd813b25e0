"""Losses of groups against loops over samples and pairs, in float64, with gradients checked numerically."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from elasticctr.config import parse_settings
from elasticctr.errors import ConfigError
from elasticctr.models import Inputs, InputSpec, Loss, LossSettings
from elasticctr.models import ranking_losses as ranking
from elasticctr.models.layers.features import deep_features

LOGITS = [-3.0, -0.5, 0.0, 0.25, 2.0, 6.0, -1.0, 0.5]
LABELS = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
GROUPS = [0, 0, 1, 0, 2, 1, 1, 0]
WEIGHTS = [1.0, 0.5, 2.0, 0.0, 3.0, 1.0, 1.5, 2.5]
SPEC = InputSpec(("ad",), (2,), dense_dim=1)


def softplus(x: float) -> float:
    return float(np.logaddexp(0, x))


def tensors() -> Iterator[torch.Tensor]:
    return (torch.tensor(x, dtype=torch.float64) for x in (LOGITS, LABELS, WEIGHTS))


def naive_pairwise(groups: list[int]) -> float:
    losses = [
        WEIGHTS[i] * WEIGHTS[j] * softplus(LOGITS[j] - LOGITS[i])
        for i in range(8)
        for j in range(8)
        if LABELS[i] == 1 and LABELS[j] == 0 and groups[i] == groups[j]
    ]
    return sum(losses) / len(losses)


def naive_entropy() -> float:
    return sum(w * softplus(-z if y else z) for z, y, w in zip(LOGITS, LABELS, WEIGHTS, strict=True)) / 8


@pytest.mark.parametrize("kind", ["bce", "focal"])
@pytest.mark.parametrize("is_grouped", [True, False])
def test_pairwise_is_added_to_the_loss_of_samples(kind: str, is_grouped: bool) -> None:
    logits, labels, weights = tensors()
    loss = Loss(LossSettings(kind=kind, pairwise=0.3, gamma=0.0))
    groups = torch.tensor(GROUPS) if is_grouped else None
    expected = naive_entropy() + 0.3 * naive_pairwise(GROUPS if is_grouped else [0] * 8)
    assert loss(logits, labels, weights, groups).item() == pytest.approx(expected, rel=1e-12)
    assert torch.autograd.gradcheck(lambda z: loss(z, labels, weights, groups), logits.requires_grad_())


def test_groups_without_pairs_have_no_pairwise_loss() -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    for labels in (torch.ones(8), torch.zeros(8)):
        pairs = ranking.pairwise(logits, labels, torch.ones(8), torch.tensor(GROUPS), 512)
        assert pairs.item() == 0.0
    assert len(ranking.make_pairs(torch.zeros(0, dtype=torch.bool), torch.zeros(0, dtype=torch.int64), 4)[0]) == 0


@pytest.mark.parametrize("most", [1, 3, 100])
def test_every_negative_is_met_equally_often(most: int) -> None:
    random = torch.Generator().manual_seed(1)
    groups = torch.randint(0, 5, (200,), generator=random)
    is_positive = torch.rand(200, generator=random) < 0.4
    positives, negatives = ranking.make_pairs(is_positive, groups, most)
    assert is_positive[positives].all()
    assert not is_positive[negatives].any()
    assert (groups[positives] == groups[negatives]).all()
    pairs = list(zip(positives.tolist(), negatives.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    for group in range(5):
        inside = (groups == group).nonzero()[:, 0].tolist()
        these = [i for i in inside if is_positive[i]]
        those = [j for j in inside if not is_positive[j]]
        counts = [sum(j == pair[1] for pair in pairs) for j in those]
        assert sum(counts) == len(these) * min(most, len(those))
        assert max(counts) - min(counts) <= 1


def test_jrc_is_the_papers_sum_over_contexts() -> None:
    settings = LossSettings(kind="jrc", calibration=0.7, jrc_hidden=())
    torch.manual_seed(3)
    loss = Loss(settings, spec=SPEC).double()
    flat = torch.randn(8, 3, dtype=torch.float64)
    logits, labels, weights = tensors()
    assert loss.base is not None
    weight, bias = (p.detach().numpy() for p in loss.base.parameters())
    base = [float(weight[0] @ flat[i].numpy() + bias[0]) for i in range(8)]
    pair = [(base[i], base[i] + LOGITS[i]) for i in range(8)]  # logits of not happening and of happening
    total = 0.0
    for i in range(8):
        y = int(LABELS[i])
        of_outcomes = math.log(sum(math.exp(one) for one in pair[i]))
        of_group = math.log(sum(math.exp(pair[j][y]) for j in range(8) if GROUPS[j] == GROUPS[i]))
        total += WEIGHTS[i] * (0.7 * (of_outcomes - pair[i][y]) + 0.3 * (of_group - pair[i][y])) / 8

    def compute(z: torch.Tensor, x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return loss(z, labels, weights, torch.tensor(GROUPS), Inputs(SPEC, x))

    assert compute(logits, flat).item() == pytest.approx(total, rel=1e-12)
    inputs = (logits.requires_grad_(), flat.requires_grad_(), *loss.parameters())
    assert torch.autograd.gradcheck(compute, inputs)
    assert deep_features(Inputs(SPEC, flat)).shape == (8, 3)


@pytest.mark.parametrize("settings", [{"pairwise": 1.0}, {"kind": "jrc"}, {"kind": "jrc", "pairwise": 2.0}])
@pytest.mark.parametrize("z", [-1e4, 1e4])
def test_huge_logits(settings: dict[str, Any], z: float) -> None:
    logits = torch.tensor([z, -z, z, -z], requires_grad=True)
    loss = Loss(LossSettings(**settings), spec=SPEC)
    value = loss(logits, torch.tensor([0.0, 1.0, 1.0, 0.0]), None, None, Inputs(SPEC, torch.ones(4, 3)))
    value.backward()
    assert math.isfinite(value.item())
    assert logits.grad is not None and logits.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())


def test_jrc_needs_inputs() -> None:
    with pytest.raises(ConfigError, match="jrc"):
        Loss(LossSettings(kind="jrc"))
    with pytest.raises(ConfigError, match="calibration"):
        parse_settings(LossSettings, {"kind": "jrc", "calibration": 0.0}, "job.yaml")
