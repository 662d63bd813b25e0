"""AutoDis against the paper's formula, one number at a time."""

from __future__ import annotations

import math

import pytest
import torch

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.autodis import AutoDis
from elasticctr.models.layers.fields import Fields


def embed(layer: AutoDis, column: int, x: float) -> list[float]:
    """One number by loops, in float64."""
    first, second, meta = (p.detach().double()[column] for p in (layer.first, layer.second, layer.meta))
    buckets = len(first)
    hidden = []
    for j in range(buckets):
        value = float(first[j]) * x
        hidden.append(value if value > 0 else 0.01 * value)
    scores = [
        (sum(hidden[i] * float(second[i, j]) for i in range(buckets)) + layer.skip * hidden[j]) / layer.temperature
        for j in range(buckets)
    ]
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    total = sum(weights)
    return [sum(w / total * float(meta[j, k]) for j, w in enumerate(weights)) for k in range(meta.shape[1])]


def test_every_number_is_a_soft_choice_of_meta_embeddings() -> None:
    torch.manual_seed(1)
    layer = AutoDis(3, 4, buckets=5, temperature=0.5)
    with torch.no_grad():
        layer.meta.normal_()
    numbers = torch.tensor([[0.0, 1.5, -2.0], [3.0, -0.1, 0.7]])
    out = layer(numbers)
    assert out.shape == (2, 3, 4)
    for i in range(2):
        for column in range(3):
            expected = torch.tensor(embed(layer, column, float(numbers[i, column])))
            assert torch.allclose(out[i, column].double(), expected.double(), atol=1e-6)


def test_gradients_are_those_of_small_steps() -> None:
    torch.manual_seed(2)
    layer = AutoDis(2, 3, buckets=4, temperature=1.0).double()
    numbers = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]
    parameters = tuple(parameter.detach().clone().requires_grad_() for parameter in layer.parameters())

    def run(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (numbers, *parameters))


def test_no_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="need a dense slot"):
        AutoDis(0, 4)
    assert AutoDis(2, 3)(torch.zeros(0, 2)).shape == (0, 2, 3)


def test_fields_take_numbers_by_autodis() -> None:
    spec = InputSpec(slots=("a",), dims=(4,), dense_dim=2)
    fields = Fields(spec, "any", "autodis")
    inputs = Inputs(spec, torch.randn(3, spec.width))
    out = fields(inputs)
    assert out.shape == (3, 3, 4) and fields.autodis is not None and fields.dense_vectors is None
    assert torch.equal(out[:, 1:], fields.autodis(inputs.dense)) and torch.equal(out[:, 0], inputs.embeddings)
