"""Wide & deep is wide plus deep; slots can be for one part alone."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import InputSpec, create
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner

SMALL = {"dim": 2, "hidden": [6, 3]}


@pytest.mark.parametrize("wide_only", [(), ("user",), ("ad", "hour")])
@pytest.mark.parametrize("wide", ["dense", "sparse", "both"])
def test_forward_is_wide_plus_deep(kit: Kit, wide: str, wide_only: tuple[str, ...]) -> None:
    settings = SMALL | {"wide": wide, "wide_only": wide_only}
    spec = kit.spec_for("wide_deep", settings, sequences=True)
    assert spec.linear == (wide != "dense")
    assert spec.linear_slots == (wide_only if wide == "dense" else spec.slots)
    assert spec.embedding_width == 2 * (3 - len(wide_only))
    model = kit.randomize(create("wide_deep", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    linear, deep = np.split(inputs.flat.numpy(), [spec.linear_width], axis=1)
    expected = kit.numpy_mlp(
        model.deep, np.concatenate([deep, *(kit.numpy_mean(s) for s in inputs.sequences.values())], axis=1)
    )[:, 0]
    expected = expected + model.wide.bias.item()
    if wide != "sparse":
        expected = expected + deep[:, -2:] @ model.wide.weight.detach().numpy()[0]
    expected = expected + linear.sum(axis=1)
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-10)
    assert kit.check_gradients(model, inputs)


def test_the_seeds_shape(kit: Kit) -> None:
    """PaddleRec's config_bigdata: 26 slots of width 9, 13 dense, 247-512-256-128-32-1 and a wide Linear(13, 1)."""
    spec = kit.spec_for("wide_deep", slots=tuple(f"C{i}" for i in range(26)), dense_dim=13)
    model = create("wide_deep", spec)
    sizes = (247, 512, 256, 128, 32, 1)
    deep = sum(a * b + b for a, b in pairwise(sizes))
    assert sum(p.numel() for p in model.parameters()) == deep + 13 + 1


def test_slots_for_the_wide_part_alone_have_rows_of_one_weight() -> None:
    """As crosses have: nothing of them is in the tower, and in another table than the embeddings."""
    slots = [{"name": "ad"}, {"name": "user"}, {"name": "ad_x_user"}, {"kind": "dense", "name": "x"}]
    job = {"schema": {"slots": slots}, "data": {"train": "log"}}
    for wide, widths in (("dense", [2, 1]), ("sparse", [3, 1])):
        options = SMALL | {"name": "wide_deep", "wide": wide, "wide_only": ["ad_x_user"]}
        learner = Learner(Job.model_validate(job | {"model": options}))
        tables = [table.settings for table in learner.plan.tables]
        assert [table.name for table in tables] == ["main.2", "main.0"]
        assert [sum(segment.dim for segment in table.segments) for table in tables] == widths
        model: Any = learner.model
        assert model.deep.widths[0] == 2 * 2 + 1
        places = {plan.slot.name: plan.columns for plan in learner.plan.slots}
        assert places["ad_x_user"] == {"linear": 0 if wide == "dense" else 2}


def test_a_slot_that_is_not_there_gets_the_nearest() -> None:
    job = {"schema": {"slots": [{"name": "ad"}, {"name": "user"}]}, "data": {"train": "log"}}
    job["model"] = {"name": "wide_deep", "wide_only": ["usr"]}
    with pytest.raises(
        ConfigError, match="'usr', to be read by linear weights only, is not a pooled slot; did you mean 'user'"
    ):
        Learner(Job.model_validate(job))


def test_a_slot_without_embedding_needs_a_model_with_linear_weights() -> None:
    spec = InputSpec(("ad", "cross"), (4, 0), dense_dim=1)
    assert create("wide_deep", spec, {"dim": 4}).spec.linear_slots == ("cross",)
    with pytest.raises(ConfigError, match="'dnn' needs embeddings, but slot 'cross' has width 0"):
        create("dnn", spec, {"dim": 4})


def test_the_tower_reads_its_input_in_place(kit: Kit) -> None:
    spec = kit.spec_for("wide_deep", SMALL)
    model: Any = create("wide_deep", spec, SMALL)
    inputs = kit.random_inputs(spec)
    seen = []
    model.deep.register_forward_pre_hook(lambda module, args: seen.append(args[0].data_ptr()))
    model(inputs)
    assert seen == [inputs.flat.data_ptr()]


def test_several_labels_and_different_widths(kit: Kit) -> None:
    settings = SMALL | {"wide": "both"}
    spec = kit.spec_for("wide_deep", settings, dims=(1, 5, 3), labels=2)
    assert create("wide_deep", spec, settings)(kit.random_inputs(spec)).shape == (5, 2)


def test_a_wide_part_without_slots_is_refused(kit: Kit) -> None:
    with pytest.raises(ConfigError, match="needs a dense slot; without one set wide: sparse"):
        create("wide_deep", kit.spec_for("wide_deep", dense_dim=0))
    with pytest.raises(ConfigError, match="needs a pooled sparse slot"):
        create("wide_deep", kit.spec_for("wide_deep", {"wide": "sparse"}, slots=()), {"wide": "sparse"})


def test_learns_xor(kit: Kit) -> None:
    assert kit.learn_xor("wide_deep", {"dim": 4, "hidden": [16], "wide": "sparse"}).all()
