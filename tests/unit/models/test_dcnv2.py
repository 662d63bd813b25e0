"""DCNv2 equals explicit loops, low-rank and mixed too, and learns XOR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import create, parse, resolve


def cross_by_loops(model: Any, x0: np.ndarray, rank: int) -> np.ndarray:
    x = x0.copy()
    for layer in range(2):
        if rank == 0:
            matrix = model.cross.full[layer].weight.detach().numpy()
            bias = model.cross.full[layer].bias.detach().numpy()
        else:
            up, down = model.cross.up[layer], model.cross.down[layer]
            matrix, bias = up.weight.detach().numpy() @ down.weight.detach().numpy(), up.bias.detach().numpy()
        after = np.empty_like(x)
        for b in range(x.shape[0]):
            for i in range(x.shape[1]):
                inner = sum(matrix[i, j] * x[b, j] for j in range(x.shape[1]))
                after[b, i] = x0[b, i] * (inner + bias[i]) + x[b, i]
        x = after
    return x


@pytest.mark.parametrize("structure", ["stacked", "parallel"])
@pytest.mark.parametrize("rank", [0, 2])
def test_forward_equals_explicit_loops(kit: Kit, structure: str, rank: int) -> None:
    settings = {"dim": 2, "hidden": [5, 3], "structure": structure, "cross_layers": 2, "rank": rank}
    spec = kit.spec_for("dcnv2", settings, dims=(1, 3, 2), sequences=True)
    model = kit.randomize(create("dcnv2", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    x0 = np.concatenate([inputs.flat.numpy(), *(kit.numpy_mean(s) for s in inputs.sequences.values())], axis=1)
    crossed = cross_by_loops(model, x0, rank)
    if structure == "stacked":
        expected = kit.numpy_mlp(model.deep, crossed)[:, 0]
    else:
        deep = np.maximum(kit.numpy_mlp(model.deep, x0), 0)
        head = model.head
        both = np.concatenate([crossed, deep], axis=1)
        expected = (both @ head.weight.detach().numpy().T + head.bias.detach().numpy())[:, 0]
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-9)
    assert kit.check_gradients(model, inputs)


@pytest.mark.parametrize(
    "settings",
    [{"hidden": []}, {"hidden": [8], "rank": 4}, {"hidden": [8], "structure": "parallel"}, {"rank": 4, "experts": 2}],
)
def test_learns_xor(kit: Kit, settings: dict[str, Any]) -> None:
    """With no tower the crosses have to do it alone."""
    assert kit.learn_xor("dcnv2", {"dim": 4, "cross_layers": 2, "hidden": []} | settings).all()


def test_low_rank_is_smaller(kit: Kit) -> None:
    spec = kit.spec_for("dcnv2", slots=tuple("abcdefgh"))
    models: list[Any] = [create("dcnv2", spec, {"rank": rank}) for rank in (0, 8)]
    full, low = (sum(p.numel() for p in model.cross.parameters()) for model in models)
    width = 8 * 9 + 2
    assert full == 3 * (width * width + width)
    assert low == 3 * (2 * 8 * width + width)


def test_a_mixture_equals_explicit_loops(kit: Kit) -> None:
    rank, experts = 2, 3
    settings = {"dim": 2, "hidden": [4], "cross_layers": 2, "rank": rank, "experts": experts}
    spec = kit.spec_for("dcnv2", settings)
    model = kit.randomize(create("dcnv2", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    crossed = []
    for x0 in inputs.flat.numpy():
        x = x0
        for layer in range(2):
            down, up, gate = (
                part[layer].weight.detach().numpy() for part in (model.cross.down, model.cross.up, model.cross.gates)
            )
            middle, bias = model.cross.middle[layer].detach().numpy(), model.cross.up[layer].bias.detach().numpy()
            scores = np.exp(gate @ x + model.cross.gates[layer].bias.detach().numpy())
            after = x.copy()
            for e in range(experts):
                own = slice(e * rank, (e + 1) * rank)
                inner = np.tanh(middle[e].T @ np.tanh(down[own] @ x))
                after = after + scores[e] / scores.sum() * x0 * (up[:, own] @ inner + bias)
            x = after
        crossed.append(x)
    expected = kit.numpy_mlp(model.deep, np.stack(crossed))[:, 0]
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-9)
    assert kit.check_gradients(model, inputs)


def test_a_mixture_of_full_matrices_is_refused() -> None:
    with pytest.raises(ConfigError, match="set rank too"):
        parse(resolve("dcnv2"), {"experts": 4})


def test_zero_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match="cross_layers"):
        parse(resolve("dcnv2"), {"cross_layers": 0})
