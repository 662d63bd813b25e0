from __future__ import annotations

import itertools

import torch

from elasticctr.models import Inputs, InputSpec
from elasticctr.models.layers.fm import Pairs


def test_one_sample_by_hand():
    spec = InputSpec(("a", "b", "c"), (2, 2, 2))
    vectors = [(1.0, 2.0), (3.0, -1.0), (0.5, 4.0)]
    expected = sum(p[0] * q[0] + p[1] * q[1] for p, q in itertools.combinations(vectors, 2))
    logits = Pairs(spec, 2)(Inputs(spec, torch.tensor([[x for v in vectors for x in v]])))
    assert logits.tolist() == [[expected]]


def test_one_slot_alone_has_no_pairs():
    spec = InputSpec(("a",), (3,))
    logits = Pairs(spec, 3)(Inputs(spec, torch.randn(4, 3)))
    assert logits.shape == (4, 1)
    assert logits.abs().max() < 1e-6
