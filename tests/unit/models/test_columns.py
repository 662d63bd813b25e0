"""Columns against plain slices: the same views, the same gradients, whichever of them are used."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from elasticctr.models import Inputs, InputSpec
from elasticctr.models.columns import read_columns

NAMES = ("linear", "embeddings", "dense", "deep")


def slices(flat: torch.Tensor, linear: int, pooled: int) -> dict[str, torch.Tensor]:
    return {
        "linear": flat[:, :linear],
        "embeddings": flat[:, linear:pooled],
        "dense": flat[:, pooled:],
        "deep": flat[:, linear:],
    }


@pytest.mark.parametrize(
    ("linear", "pooled", "width"), [(2, 6, 9), (0, 4, 7), (0, 4, 4), (3, 3, 5), (2, 6, 6), (0, 0, 3)]
)
def test_gradients_of_every_selection(linear: int, pooled: int, width: int) -> None:
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(3, width, generator=generator, dtype=torch.float64)
    for count in range(1, 5):
        for used in itertools.combinations(NAMES, count):
            results = []
            for read in (lambda f: read_columns(f, linear, pooled)._asdict(), lambda f: slices(f, linear, pooled)):
                flat = data.clone().requires_grad_()
                parts = read(flat)
                # Weights that differ by column show a gradient in the wrong place.
                loss: Any = sum((parts[n] ** 3 * torch.arange(1.0, parts[n].shape[1] + 1)).sum() for n in used)
                loss.backward()
                results.append(flat.grad)
            torch.testing.assert_close(*results, rtol=1e-14, atol=0)


def test_nothing_is_copied() -> None:
    flat = torch.zeros(2, 9, requires_grad=True)
    for columns in (read_columns(flat, 2, 6), read_columns(flat.detach(), 2, 6)):
        assert [c.data_ptr() - flat.data_ptr() for c in columns] == [0, 8, 24, 8]
        assert [c.shape[1] for c in columns] == [2, 4, 3, 7]


def test_a_part_used_twice() -> None:
    flat = torch.ones(1, 4, requires_grad=True)
    columns = read_columns(flat, 1, 3)
    (columns.embeddings.sum() + 2 * columns.embeddings.sum() + columns.deep.sum()).backward()
    assert flat.grad is not None
    assert flat.grad.tolist() == [[0, 4, 4, 1]]


def test_without_gradients_nothing_is_recorded() -> None:
    flat = torch.ones(1, 4, requires_grad=True)
    with torch.no_grad():
        assert read_columns(flat, 1, 3).deep.grad_fn is None


def test_inputs_read_without_gradients_still_learn_later() -> None:
    spec = InputSpec(("a",), (2,), dense_dim=1, linear=True)
    inputs = Inputs(spec, torch.ones(2, 4))
    inputs.deep.sum()
    inputs.flat.requires_grad_()
    with torch.no_grad():
        inputs.deep.sum()
    (inputs.deep.sum() + inputs.linear.sum()).backward()
    assert inputs.flat.grad is not None
    assert inputs.flat.grad.tolist() == [[1.0] * 4] * 2
    inputs.embeddings.sum().backward()
    assert inputs.flat.grad.tolist() == [[1.0, 2.0, 2.0, 1.0]] * 2
