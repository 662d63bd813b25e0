"""Fields are the slots, then dense floats times their vectors."""

from __future__ import annotations

import torch

from elasticctr.models import Inputs, InputSpec
from elasticctr.models.layers.fields import Fields


def test_slots_then_dense_floats_times_their_vectors() -> None:
    spec = InputSpec(("a", "cross", "b"), (2, 0, 2), dense_dim=2, linear=True)
    fields = Fields(spec, "test")
    assert (fields.count, fields.dim) == (4, 2)
    with torch.no_grad():
        assert fields.dense_vectors is not None
        fields.dense_vectors.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    flat = torch.tensor([[9.0, 9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 10.0, 100.0]])
    assert fields(Inputs(spec, flat)).tolist() == [[[1, 2], [3, 4], [10, 20], [300, 400]]]


def test_without_dense_fields_it_is_a_view() -> None:
    spec = InputSpec(("a", "b"), (2, 2), dense_dim=2, linear=True)
    inputs = Inputs(spec, torch.randn(3, 8))
    read = Fields(spec, "test", dense_fields=False)(inputs)
    assert read.shape == (3, 2, 2)
    assert read.data_ptr() == inputs.flat.data_ptr() + 2 * 4
