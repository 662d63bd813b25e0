"""DIN equals explicit loops and finds a target in a history."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.models import create
from elasticctr.train.job import Job
from elasticctr.train.trainer import Trainer


@pytest.mark.parametrize("softmax", [False, True])
def test_forward_equals_explicit_loops(kit: Kit, softmax: bool) -> None:
    settings = {"dim": 3, "hidden": [5], "attention_hidden": [4], "attention_softmax": softmax}
    settings["attention"] = [{"sequence": "history", "target": "ad"}, {"sequence": "query", "target": "hour"}]
    spec = kit.spec_for("din", settings, sequences=True)
    model = kit.randomize(create("din", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    expected = []
    for i in range(5):
        parts = [inputs.deep[i].numpy()]
        for unit, slot, name in zip(model.units, (0, 2), ("history", "query"), strict=True):
            target = inputs.embeddings[i, 3 * slot : 3 * slot + 3].numpy()
            interest, scores, values = np.zeros(3), [], []
            for t in range(int(inputs.sequences[name].lengths[i])):
                value = inputs.sequences[name].values[i, t].numpy()
                x = np.concatenate([target, value, target - value, target * value])
                scores.append(kit.numpy_mlp(unit, x[None])[0, 0])
                values.append(value)
            if softmax:
                scores = list(np.exp(scores) / np.sum(np.exp(scores)))
            for score, value in zip(scores, values, strict=True):
                interest += score * value
            parts.append(interest)
        expected.append(kit.numpy_mlp(model.tower, np.concatenate(parts)[None])[0, 0])
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-9)
    assert kit.check_gradients(model, inputs)


def test_with_dice_everywhere_it_trains_and_serves(kit: Kit) -> None:
    settings = {"dim": 3, "hidden": [5], "activation": "dice", "attention_activation": "dice"}
    settings["attention"] = [{"sequence": "history", "target": "ad"}]
    model = create("din", kit.spec_for("din", settings, sequences=True), settings)
    inputs = kit.random_inputs(model.spec, 20)
    model(inputs).sum().backward()
    assert any(name.endswith("running_mean") and value.any() for name, value in model.state_dict().items())
    assert model.eval()(kit.random_inputs(model.spec, 1)).isfinite().all()


def write_log(path: Path, samples: int, seed: int) -> None:
    """Click iff the item is in the history: half of the samples, whatever the item and however long the history."""
    random = np.random.default_rng(seed)
    lines = []
    for click in random.integers(0, 2, samples).tolist():
        values = random.permutation(50)[: random.integers(2, 9)] + 1
        item = random.choice(values[1:]) if click else values[0]
        history = "".join(f" history:{value}" for value in values[1:])
        lines.append(f"click:{click} item:{item}{history}\n")
    path.write_text("".join(lines))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_it_finds_the_target_in_the_history_where_a_mean_does_not(tmp_path: Path, seed: int) -> None:
    write_log(tmp_path / "train.txt", 10_000, seed)
    write_log(tmp_path / "valid.txt", 2_000, seed + 100)
    auc = {}
    for name in ("dnn", "din"):
        job = Job.model_validate(
            {
                "run_dir": str(tmp_path / name),
                "schema": {"slots": [{"name": "item"}, {"name": "history", "pooling": "none", "max_values": 8}]},
                "data": {"train": str(tmp_path / "train.txt"), "valid": str(tmp_path / "valid.txt")},
                "model": {"name": name, "dim": 8, "hidden": [32]},
                "dense": {"learning_rate": 0.01},
                "sparse": {
                    "optimizer": {"name": "adam", "learning_rate": 0.01},
                    "initializer": {"low": -0.3, "high": 0.3},
                },
                "train": {"batch_size": 200, "epochs": 3, "threads": 1, "seed": seed},
            }
        )
        auc[name] = Trainer(job, quiet=True).run().metrics["valid"]["auc"]
    assert auc["din"] > 0.95
    assert auc["dnn"] < auc["din"] - 0.1
