"""Soft and hard search find the right places of a sequence."""

from __future__ import annotations

import torch

from elasticctr.models.layers.search import hard_search, soft_search

MASK = torch.arange(6) < torch.tensor([[6], [4], [0]])


def test_soft_search_finds_the_largest_products() -> None:
    torch.manual_seed(0)
    query, keys = torch.randn(3, 4), torch.randn(3, 6, 4)
    found = soft_search(query, keys, MASK, 3)
    for i, length in enumerate((6, 4, 0)):
        products = [float(query[i] @ keys[i, t]) for t in range(length)]
        best = sorted(range(length), key=lambda t: -products[t])[:3]
        assert found.places[i][found.mask[i]].tolist() == best
    assert found.mask.sum(dim=1).tolist() == [3, 3, 0]
    taken = found.take(keys)
    assert torch.equal(taken[0, 1], keys[0, found.places[0, 1]])
    assert torch.equal(found.take(torch.arange(6).expand(3, -1)), found.places)


def test_more_places_than_values_finds_them_all() -> None:
    found = soft_search(torch.randn(3, 4), torch.randn(3, 6, 4), MASK, 50)
    assert found.places.shape == (3, 6)
    assert torch.equal(found.mask.sum(dim=1), MASK.sum(dim=1))


def test_hard_search_finds_the_last_of_the_same_category() -> None:
    rows = torch.randn(3, 2)
    rows[2] = 0  # no row
    categories = rows[torch.tensor([[0, 1, 0, 0, 1, 0], [1, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]])]
    found = hard_search(rows[torch.tensor([0, 1, 0])], categories, MASK, 2)
    assert found.places[0].tolist() == [5, 3]
    assert found.places[1].tolist() == [3, 1]
    assert found.mask.tolist() == [[True, True], [True, True], [False, False]]
    nothing = hard_search(rows[torch.tensor([2, 2, 2])], rows[2].expand(3, 6, 2), MASK, 2)
    assert not nothing.mask.any()


def test_of_repeated_values_the_last_are_found() -> None:
    value, other = torch.tensor([0.3, -0.7, 0.1]), torch.tensor([0.3, -0.7, 0.2])
    for query in (torch.tensor([[0.5, -0.2, 0.4]]), torch.tensor([[-0.5, 0.2, -0.4]]), torch.zeros(1, 3)):
        keys = torch.stack([value, other, value, value, value, other]).unsqueeze(0)
        found = soft_search(query, keys, torch.ones(1, 6, dtype=torch.bool), 6).places[0].tolist()
        values = [4, 3, 2, 0]
        expected = {1: [5, 1, *values], -1: [*values, 5, 1], 0: [5, 4, 3, 2, 1, 0]}
        assert found == expected[int(query[0, 0].sign())]
