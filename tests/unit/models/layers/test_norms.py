"""Norms equal torch's own, in batches of one or none too."""

from __future__ import annotations

import torch

from elasticctr.models.layers.norms import BatchNorm, FieldNorm


def test_batch_norm_is_torchs_own() -> None:
    ours, theirs = BatchNorm(3), torch.nn.BatchNorm1d(3)
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)) * 4 + 2
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_a_batch_of_one_or_none_is_normalised_by_what_was_seen_before() -> None:
    norm = BatchNorm(2)
    assert norm.running_mean is not None and norm.running_var is not None
    with torch.no_grad():
        norm.running_mean.copy_(torch.tensor([1.0, -1.0]))
        norm.running_var.copy_(torch.tensor([4.0, 9.0]))
    one = norm(torch.tensor([[3.0, 5.0]]))
    torch.testing.assert_close(one, torch.tensor([[1.0, 2.0]]), rtol=1e-4, atol=1e-4)
    assert norm(torch.empty(0, 2)).shape == (0, 2)
    assert norm.running_mean.tolist() == [1.0, -1.0], "what was seen before must not change"


def test_each_field_is_normalised_alone() -> None:
    norm = FieldNorm(2, 2)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 1.0, 10.0, 10.0]))
        norm.bias.copy_(torch.tensor([0.0, 0.0, 5.0, 6.0]))
    out = norm(torch.tensor([[1.0, 3.0, 100.0, -100.0]]))
    torch.testing.assert_close(out, torch.tensor([[-1.0, 1.0, 15.0, -4.0]]), rtol=1e-4, atol=1e-4)
