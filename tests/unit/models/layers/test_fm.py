"""The factorization machine equals a calculation by hand, and its written gradient autograd."""

from __future__ import annotations

import itertools

import torch

from elasticctr.models import Inputs, InputSpec
from elasticctr.models.layers.fm import Pairs, pair_sum


def test_one_sample_by_hand() -> None:
    spec = InputSpec(("a", "b", "c"), (2, 2, 2))
    vectors = [(1.0, 2.0), (3.0, -1.0), (0.5, 4.0)]
    expected = sum(p[0] * q[0] + p[1] * q[1] for p, q in itertools.combinations(vectors, 2))
    logits = Pairs(spec, 2)(Inputs(spec, torch.tensor([[x for v in vectors for x in v]])))
    assert logits.tolist() == [[expected]]


def test_one_slot_alone_has_no_pairs() -> None:
    spec = InputSpec(("a",), (3,))
    logits = Pairs(spec, 3)(Inputs(spec, torch.randn(4, 3)))
    assert logits.shape == (4, 1)
    assert logits.abs().max() < 1e-6


def test_the_written_gradient_is_autograds() -> None:
    generator = torch.Generator().manual_seed(0)
    fold = torch.eye(3, dtype=torch.float64).repeat(4, 1)
    embeddings = torch.randn(5, 12, generator=generator, dtype=torch.float64, requires_grad=True)
    others = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    for given in (None, others):
        tensors = [embeddings] if given is None else [embeddings, given]
        assert torch.autograd.gradcheck(lambda e, *o: pair_sum(e, fold, *o), tensors)
        with torch.no_grad():
            plain = pair_sum(embeddings, fold, given)
        torch.testing.assert_close(pair_sum(embeddings, fold, given).detach(), plain, rtol=1e-12, atol=1e-12)


def test_bfloat16_autocast_does_not_touch_it() -> None:
    spec = InputSpec(("a", "b"), (4, 4), dense_dim=2)
    pairs = Pairs(spec, 4)
    inputs = Inputs(spec, torch.randn(3, 10))
    exact = pairs(inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(pairs(inputs), exact)
