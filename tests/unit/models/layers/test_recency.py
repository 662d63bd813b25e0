"""Distances count back from a sequence's end."""

from __future__ import annotations

import torch

from elasticctr.models.layers.recency import Recency, distances


def test_distances_count_back_from_the_end() -> None:
    assert distances(torch.tensor([0, 1, 3, 4]), 4).tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [3, 2, 1, 0], [4, 3, 2, 1]]


def test_each_distance_has_its_vector() -> None:
    layer = Recency(4, 3)
    vectors = layer(distances(torch.tensor([2]), 4))
    assert torch.equal(vectors[0], layer.vectors.weight[[2, 1, 0, 0]])
