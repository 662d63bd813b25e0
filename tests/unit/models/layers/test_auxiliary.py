from __future__ import annotations

import math

import torch

from elasticctr.models.layers.auxiliary import add_auxiliary, next_value_loss


def test_logits_stay_and_gradients_of_both_losses_add_up():
    w = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    logits = add_auxiliary(3 * w, (w**2).sum())
    assert torch.equal(logits, 3 * w)
    logits.sum().backward()
    torch.testing.assert_close(w.grad, 3 + 2 * w.detach())


def test_next_value_loss_is_a_loop_over_pairs():
    torch.manual_seed(6)
    states, keys = torch.randn(3, 4, 2, dtype=torch.float64), torch.randn(3, 4, 2, dtype=torch.float64)
    lengths = [4, 2, 0]
    mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    right, wrong = [], []
    for i, length in enumerate(lengths):
        for t in range(length - 1):
            right.append(math.log1p(math.exp(-float(states[i, t] @ keys[i, t + 1]))))
            if t + 1 < lengths[i - 1]:
                wrong.append(math.log1p(math.exp(float(states[i, t] @ keys[i - 1, t + 1]))))
    expected = (sum(right) / len(right) + sum(wrong) / len(wrong)) / 2
    assert abs(float(next_value_loss(states, keys, mask)) - expected) < 1e-12
    assert float(next_value_loss(states, keys, torch.zeros_like(mask))) == 0
