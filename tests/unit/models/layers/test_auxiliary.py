"""Auxiliary losses equal loops over samples."""

from __future__ import annotations

import math

import torch

from elasticctr.models.layers.auxiliary import distillation, next_value_losses


def test_distillation_is_a_loop_over_samples_and_labels() -> None:
    torch.manual_seed(5)
    students = [torch.randn(4, 2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    teacher = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    losses = distillation(students, teacher)
    losses.sum().backward()
    for i in range(4):
        for k in range(2):
            p = 1 / (1 + math.exp(-float(teacher[i, k])))
            expected = 0.0
            for student in students:
                q = 1 / (1 + math.exp(-float(student[i, k])))
                expected -= p * math.log(q) + (1 - p) * math.log(1 - q)
                assert student.grad is not None
                assert abs(float(student.grad[i, k]) - (q - p)) < 1e-12
            assert abs(float(losses[i, k]) - expected) < 1e-12
    assert teacher.grad is None, "the teacher learns from its students"


def test_distillation_of_half_floats_is_computed_in_float32() -> None:
    students, teacher = [torch.tensor([0.5, -2.0]).bfloat16()], torch.tensor([1.0, 3.0]).bfloat16()
    losses = distillation(students, teacher)
    assert losses.dtype == torch.float32
    assert torch.equal(losses, distillation([students[0].float()], teacher.float()))


def test_next_value_losses_are_a_loop_over_pairs() -> None:
    torch.manual_seed(6)
    states, keys = torch.randn(3, 4, 2, dtype=torch.float64), torch.randn(3, 4, 2, dtype=torch.float64)
    lengths = [4, 2, 0]
    mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    right, wrong = [], []
    for i, length in enumerate(lengths):
        for t in range(length - 1):
            right.append((i, math.log1p(math.exp(-float(states[i, t] @ keys[i, t + 1])))))
            if t + 1 < lengths[i - 1]:
                wrong.append((i, math.log1p(math.exp(float(states[i, t] @ keys[i - 1, t + 1])))))
    expected = [0.0, 0.0, 0.0]
    for pairs in (right, wrong):
        for i, loss in pairs:
            expected[i] += 3 * loss / len(pairs) / 2
    losses = next_value_losses(states, keys, mask)
    torch.testing.assert_close(losses, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    assert next_value_losses(states, keys, torch.zeros_like(mask)).eq(0).all()
