"""Features without and with sequences: padding has no part in a mean or a gradient."""

from __future__ import annotations

import pytest
import torch

from elasticctr.errors import ConfigError
from elasticctr.models import Inputs, InputSpec, Sequence, SequenceSpec
from elasticctr.models.layers.features import deep_features, deep_width, field_dim, field_embeddings, mean_of


def test_mean_ignores_what_is_past_the_end() -> None:
    values = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [99.0, 99.0]], [[7.0, 7.0], [7.0, 7.0], [7.0, 7.0]]])
    means = mean_of(Sequence(values, torch.tensor([2, 0])))
    assert means.tolist() == [[2.0, 4.0], [0.0, 0.0]]


def test_mean_of_a_full_sequence() -> None:
    means = mean_of(Sequence(torch.tensor([[[1.0], [2.0], [6.0]]]), torch.tensor([3])))
    assert means.tolist() == [[3.0]]


def test_no_gradient_flows_past_the_end() -> None:
    values = torch.ones(1, 3, 1, requires_grad=True)
    mean_of(Sequence(values, torch.tensor([2]))).sum().backward()
    assert values.grad is not None
    assert values.grad.flatten().tolist() == [0.5, 0.5, 0.0]


def test_without_sequences_features_are_views() -> None:
    spec = InputSpec(("a", "b"), (2, 2), dense_dim=1, linear=True)
    inputs = Inputs(spec, torch.arange(14.0).reshape(2, 7))
    start = inputs.flat.data_ptr()
    assert deep_features(inputs).data_ptr() == start + 2 * 4
    assert field_embeddings(inputs).data_ptr() == start + 2 * 4
    assert deep_features(inputs).tolist() == [[2, 3, 4, 5, 6], [9, 10, 11, 12, 13]]
    assert field_embeddings(inputs).tolist() == [[2, 3, 4, 5], [9, 10, 11, 12]]
    assert deep_width(spec) == 5


def test_sequences_come_last_in_the_order_of_the_spec() -> None:
    spec = InputSpec(("a",), (2,), sequences=(SequenceSpec("x", 2, 1), SequenceSpec("y", 2, 1)))
    one = torch.tensor([1])
    sequences = {"y": Sequence(torch.full((1, 1, 2), 5.0), one), "x": Sequence(torch.full((1, 1, 2), 4.0), one)}
    inputs = Inputs(spec, torch.tensor([[1.0, 2.0]]), sequences)
    assert deep_features(inputs).tolist() == [[1, 2, 4, 4, 5, 5]]
    assert field_embeddings(inputs).tolist() == [[1, 2, 4, 4, 5, 5]]
    assert deep_width(spec) == 6


def test_a_sequence_of_another_width_counts_too() -> None:
    spec = InputSpec(("a",), (2,), sequences=(SequenceSpec("x", 3, 1),))
    with pytest.raises(ConfigError, match="a: 2, x: 3"):
        field_dim(spec, "fm")
