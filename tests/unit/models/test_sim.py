"""SIM equals explicit loops, with soft and hard search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import Inputs, InputSpec, Sequence, SequenceSpec, create, export_onnx

SPEC = InputSpec(
    slots=("user", "item", "category"),
    dims=(3, 3, 3),
    dense_dim=1,
    sequences=(
        SequenceSpec("history", 3, 6, "item"),
        SequenceSpec("categories", 3, 6, "category"),
        SequenceSpec("age", 2, 6),
    ),
)
HARD = {
    "sequence": "history",
    "target": "item",
    "category": {"sequence": "categories", "target": "category"},
    "time": "age",
}
SMALL = {"dim": 3, "hidden": [5], "heads": 2, "head_dim": 2, "k": 2}


def make_inputs(kit: Kit, dtype: torch.dtype = torch.float64) -> tuple[Inputs, torch.Tensor]:
    """Parallel sequences of equal lengths; categories are two rows."""
    inputs = kit.random_inputs(SPEC, 12, dtype=dtype)
    lengths = torch.tensor([0, 6, 1, 3, 5, 6, 2, 4, 6, 6, 3, 6])
    rows = torch.tensor([[0.5, -1.0, 2.0], [0.1, 0.2, 0.3]], dtype=dtype)
    which = torch.randint(0, 2, (12, 6), generator=torch.Generator().manual_seed(1))
    inputs.flat[:, 6:9] = rows[0]
    sequences = {name: Sequence(s.values, lengths) for name, s in inputs.sequences.items()}
    sequences["categories"] = Sequence(rows[which], lengths)
    for sequence in sequences.values():
        sequence.values[~sequence.mask()] = 0.5  # garbage past the end; a whole category there would be found
    sequences["categories"].values[~sequences["categories"].mask()] = rows[0]
    inputs.sequences.update(sequences)
    return inputs, which


def attend(unit: Any, target: np.ndarray, keys: np.ndarray) -> np.ndarray:
    if not len(keys):
        return np.zeros(4)
    q, k, v = (
        {n: p.detach().numpy() for n, p in part.named_parameters()} for part in (unit.query, unit.key, unit.value)
    )
    query = q["weight"] @ target + q["bias"]
    result = np.zeros(4)
    for head in (slice(0, 2), slice(2, 4)):
        scores = np.array([np.exp(query[head] @ (k["weight"] @ key)[head] / np.sqrt(2)) for key in keys])
        for score, key in zip(scores / scores.sum(), keys, strict=True):
            result[head] += score * (v["weight"] @ key + v["bias"])[head]
    return result


@pytest.mark.parametrize("search", ["soft", "hard"])
def test_forward_equals_explicit_loops(kit: Kit, search: str) -> None:
    settings = {**SMALL, "search": search, "attention": [HARD]}
    model = kit.randomize(create("sim", SPEC, settings))
    inputs, which = make_inputs(kit)
    unit, ages = model.units[0], model.units[0].recency.vectors.weight.detach().numpy()
    means = kit.numpy_mean(inputs.sequences["categories"])
    expected, found_any = [], 0
    for i, length in enumerate(inputs.sequences["history"].lengths.tolist()):
        target = inputs.embeddings[i, 3:6].numpy()
        values = inputs.sequences["history"].values[i].numpy()
        if search == "soft":
            places = sorted(range(length), key=lambda t: -values[t] @ target)[:2]
        else:
            places = [t for t in range(length) if which[i, t] == 0][-2:]
        found_any += bool(places)
        times = inputs.sequences["age"].values[i].numpy()
        keys = np.array([np.concatenate([values[t] + ages[length - t], times[t]]) for t in places])
        x = np.concatenate([inputs.deep[i].numpy(), means[i], attend(unit.attention, target, keys)])
        expected.append(kit.numpy_mlp(model.tower, x[None])[0, 0])
    assert found_any > 8
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-9)


def test_gradients_where_nothing_is_left_out(kit: Kit) -> None:
    settings = {**SMALL, "k": 10, "attention": [{"sequence": "history", "target": "item"}]}
    model = kit.randomize(create("sim", SPEC, settings))
    assert kit.check_gradients(model, make_inputs(kit)[0])


def test_hard_search_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match="search: hard needs 'category'"):
        create("sim", SPEC, {**SMALL, "search": "hard"})
    other = {**HARD, "time": "nothing"}
    with pytest.raises(ConfigError, match="'nothing' is not a sequence"):
        create("sim", SPEC, {**SMALL, "attention": [other]})


@pytest.mark.slow
def test_hard_search_is_exported(kit: Kit, tmp_path: Path) -> None:
    model = kit.randomize(create("sim", SPEC, {**SMALL, "search": "hard", "attention": [HARD]})).float().eval()
    export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    inputs, _ = make_inputs(kit, torch.float32)
    with torch.no_grad():
        expected = model(inputs)
    np.testing.assert_allclose(session.run(None, kit.feeds(inputs))[0], expected, rtol=1e-5, atol=1e-5)
