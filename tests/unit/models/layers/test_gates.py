"""Gates read the slots they name, and start at one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elasticctr.errors import ConfigError
from elasticctr.models import Inputs, InputSpec, Sequence, SequenceSpec
from elasticctr.models.layers.gates import ContextGate, FieldGate, Regulation

SPEC = InputSpec(("ad", "user"), (2, 3), dense_dim=1, linear=True, sequences=(SequenceSpec("history", 2, 2),))


def sample() -> Inputs:
    sequence = Sequence(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([1]))
    return Inputs(SPEC, torch.tensor([[9.0, 9.0, 0.1, 0.2, 0.3, 0.4, 0.5, 7.0]]), {"history": sequence})


def test_a_gate_reads_its_slots_in_the_order_they_are_named() -> None:
    gate = ContextGate(SPEC, ("user", "history"), (), 2, "model")
    with torch.no_grad():
        gate.mlp.layers()[0].weight.copy_(torch.tensor([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 1.0]]))
    expected = 2 / (1 + np.exp(-np.array([[0.3, 0.5 + 2.0]])))
    np.testing.assert_allclose(gate(sample()).detach().numpy(), expected, rtol=1e-6)


def test_a_gate_without_context_is_the_same_for_all_and_starts_at_one() -> None:
    gate = ContextGate(SPEC, (), (4,), 5, "model")
    np.testing.assert_allclose(gate(sample()).detach().numpy(), np.ones((1, 5)))


def test_an_unknown_context_slot_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'item' is not a sparse slot with an embedding; known: ad, user, history"):
        ContextGate(SPEC, ("item",), (), 2, "model")


def test_a_field_gate_mixes_fields_column_by_column() -> None:
    gate = FieldGate(2)
    fields = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    assert gate(fields).tolist() == [[[1.0, 1.0], [1.0, 1.0]]]
    with torch.no_grad():
        gate.mix.weight.copy_(torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
    assert gate(fields).tolist() == [[[4.0, 5.0], [3.0, 5.0]]]


def test_regulation_scales_fields_of_any_width() -> None:
    regulation = Regulation((1, 2), temperature=0.5)
    with torch.no_grad():
        regulation.scores.copy_(torch.tensor([[0.0, 0.0], [0.5 * np.log(3.0), 0.0]]))
    first, second = regulation(torch.tensor([[1.0, 2.0, 4.0]]))
    torch.testing.assert_close(first, torch.tensor([[0.5, 1.0, 2.0]]))
    torch.testing.assert_close(second, torch.tensor([[0.75, 0.5, 1.0]]))
