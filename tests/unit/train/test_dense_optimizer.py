"""DenseAdam against torch.optim.Adam and against the published formula in float64."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from elasticctr import _native
from elasticctr.train.dense_optimizer import DenseAdam

SHAPES = [(1,), (3, 5), (64,), (33, 17), (40000,), (2, 16384)]
SETTINGS: dict[str, Any] = {"lr": 3e-3, "betas": (0.85, 0.97), "eps": 1e-6, "weight_decay": 0.02}


def make_parameters(seed: int = 0) -> list[torch.nn.Parameter]:
    g = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=g)) for shape in SHAPES]


def set_gradients(parameters: list[torch.nn.Parameter], step: int) -> None:
    g = torch.Generator().manual_seed(1000 + step)
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=g) * (0.1 + step % 3)


def run(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], steps: range) -> None:
    for step in steps:
        set_gradients(parameters, step)
        optimizer.step()


def test_formula_in_float64() -> None:
    parameters = make_parameters()
    expected = [p.detach().double().numpy().copy() for p in parameters]
    means = [np.zeros_like(e) for e in expected]
    squares = [np.zeros_like(e) for e in expected]
    optimizer = DenseAdam(parameters, **SETTINGS)
    b1, b2 = SETTINGS["betas"]
    for step in range(25):
        set_gradients(parameters, step)
        optimizer.step()
        for p, w, m, v in zip(parameters, expected, means, squares, strict=True):
            assert p.grad is not None
            g = p.grad.double().numpy() + SETTINGS["weight_decay"] * w
            m += (1 - b1) * (g - m)
            v += (1 - b2) * (g * g - v)
            m_hat, v_hat = m / (1 - b1 ** (step + 1)), v / (1 - b2 ** (step + 1))
            w -= SETTINGS["lr"] * m_hat / (np.sqrt(v_hat) + SETTINGS["eps"])
    for p, w in zip(parameters, expected, strict=True):
        # 25 steps of at most ~3e-3, each rounded to float32 weights of size ~1.
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=0, atol=3e-6)


def test_save_restore_step_both_ways() -> None:
    """torch's Adam goes on from our state and we from torch's, to the same weights."""
    reference = make_parameters()
    run(torch.optim.Adam(reference, **SETTINGS), reference, range(12))
    for first, second in ((DenseAdam, torch.optim.Adam), (torch.optim.Adam, DenseAdam), (DenseAdam, DenseAdam)):
        parameters = make_parameters()
        optimizer = first(parameters, **SETTINGS)
        run(optimizer, parameters, range(5))
        saved = copy.deepcopy(optimizer.state_dict())
        resumed = second(parameters, lr=1.0)
        resumed.load_state_dict(saved)
        run(resumed, parameters, range(5, 12))
        for p, r in zip(parameters, reference, strict=True):
            torch.testing.assert_close(p, r, rtol=0, atol=2e-6)


def test_threads_do_not_change_a_bit() -> None:
    results = []
    threads = _native.threads()
    try:
        for count in (1, 3):
            _native.set_threads(count)
            parameters = make_parameters()
            run(DenseAdam(parameters, **SETTINGS), parameters, range(3))
            results.append(parameters)
    finally:
        _native.set_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_scheduler_groups_and_missing_gradients() -> None:
    ours, theirs = make_parameters(), make_parameters()
    for cls, parameters in ((DenseAdam, ours), (torch.optim.Adam, theirs)):
        groups: list[dict[str, Any]] = [{"params": parameters[:2], "lr": 0.1}, {"params": parameters[2:]}]
        optimizer = cls(groups, lr=0.01)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for step in range(4):
            set_gradients(parameters, step)
            parameters[3].grad = None
            optimizer.step()
            scheduler.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-6)


@pytest.mark.parametrize("options", [{"amsgrad": True}, {"maximize": True}])
def test_what_is_not_native_is_torchs(options: dict[str, Any]) -> None:
    ours, theirs = make_parameters(), make_parameters()
    run(DenseAdam(ours, **SETTINGS, **options), ours, range(3))
    run(torch.optim.Adam(theirs, **SETTINGS, **options), theirs, range(3))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_step_counts_as_a_change_in_place() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = DenseAdam([weight])
    y = (weight * weight).sum()
    weight.grad = torch.ones(3)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
