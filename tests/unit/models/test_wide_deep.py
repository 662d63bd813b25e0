from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from elasticctr.errors import ConfigError
from elasticctr.models import create

SMALL = {"dim": 2, "hidden": [6, 3]}


@pytest.mark.parametrize("wide", ["dense", "sparse", "both"])
def test_forward_is_wide_plus_deep(kit, wide):
    settings = SMALL | {"wide": wide}
    spec = kit.spec_for("wide_deep", settings, sequences=True)
    assert spec.linear == (wide != "dense")
    model = kit.randomize(create("wide_deep", spec, settings))
    inputs = kit.random_inputs(spec, dtype=torch.float64)
    linear, deep = np.split(inputs.flat.numpy(), [spec.linear_width], axis=1)
    expected = kit.numpy_mlp(
        model.deep, np.concatenate([deep, *(kit.numpy_mean(s) for s in inputs.sequences.values())], axis=1)
    )[:, 0]
    expected = expected + model.wide.bias.item()
    if wide != "sparse":
        expected = expected + deep[:, -2:] @ model.wide.weight.detach().numpy()[0]
    if wide != "dense":
        expected = expected + linear.sum(axis=1)
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-10)
    assert kit.check_gradients(model, inputs)


def test_the_seeds_shape(kit):
    """PaddleRec's config_bigdata: 26 slots of width 9, 13 dense, 247-512-256-128-32-1 and a wide Linear(13, 1)."""
    spec = kit.spec_for("wide_deep", slots=tuple(f"C{i}" for i in range(26)), dense_dim=13)
    model = create("wide_deep", spec)
    sizes = (247, 512, 256, 128, 32, 1)
    deep = sum(a * b + b for a, b in pairwise(sizes))
    assert sum(p.numel() for p in model.parameters()) == deep + 13 + 1


def test_the_tower_reads_its_input_in_place(kit):
    spec = kit.spec_for("wide_deep", SMALL)
    model = create("wide_deep", spec, SMALL)
    inputs = kit.random_inputs(spec)
    seen = []
    model.deep.register_forward_pre_hook(lambda module, args: seen.append(args[0].data_ptr()))
    model(inputs)
    assert seen == [inputs.flat.data_ptr()]


def test_several_labels_and_different_widths(kit):
    settings = SMALL | {"wide": "both"}
    spec = kit.spec_for("wide_deep", settings, dims=(1, 5, 3), labels=2)
    assert create("wide_deep", spec, settings)(kit.random_inputs(spec)).shape == (5, 2)


def test_a_wide_part_without_slots_is_refused(kit):
    with pytest.raises(ConfigError, match="needs a dense slot; without one set wide: sparse"):
        create("wide_deep", kit.spec_for("wide_deep", dense_dim=0))
    with pytest.raises(ConfigError, match="needs a pooled sparse slot"):
        create("wide_deep", kit.spec_for("wide_deep", {"wide": "sparse"}, slots=()), {"wide": "sparse"})


def test_learns_xor(kit):
    assert kit.learn_xor("wide_deep", {"dim": 4, "hidden": [16], "wide": "sparse"}).all()
