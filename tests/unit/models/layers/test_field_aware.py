"""Field-aware pairs and their written gradient equal autograd."""

from __future__ import annotations

import torch

from elasticctr.models.layers.field_aware import FieldAwarePairs, slot_pairs


def test_two_slots_by_hand() -> None:
    # One vector each, for the other slot.
    pairs = FieldAwarePairs(slots=2, dense=0, dim=2)
    assert pairs(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.zeros(1, 0)).tolist() == [[1 * 3 + 2 * 4]]


def test_vectors_face_each_other() -> None:
    """Slot i's vector for slot j is 10 i + j: products are of 01 with 10, 02 with 20 and 12 with 21."""
    vectors = torch.tensor([[[1.0], [2.0]], [[10.0], [12.0]], [[20.0], [21.0]]]).unsqueeze(0)
    assert slot_pairs(vectors).tolist() == [[1 * 10 + 2 * 20 + 12 * 21]]


def test_the_written_gradient_is_autograds_and_zero_for_vectors_that_take_no_part() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(3, 4, 5, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(slot_pairs, vectors)
    (gradient,) = torch.autograd.grad(slot_pairs(vectors).sum(), vectors)
    assert (gradient[:, :, 3:] == 0).all()
    assert (gradient[:, :, :3] != 0).all()
    with torch.no_grad():
        plain = slot_pairs(vectors)
    torch.testing.assert_close(slot_pairs(vectors), plain, rtol=1e-12, atol=1e-12)
