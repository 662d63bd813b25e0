"""What the `cluster` section stands for where it says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from elasticctr.train.cluster_settings import ClusterSettings


@pytest.mark.parametrize(
    ("given", "encoding"),
    [
        ({}, "bf16"),
        ({"strategy": "half_async"}, "fp32"),
        ({"strategy": "async", "staleness": 0}, "fp32"),
        ({"strategy": "sync"}, "fp32"),
        ({"strategy": "hybrid"}, "fp32"),
        ({"strategy": "geo"}, "fp32"),
        ({"strategy": "sync", "gradients_as": "int8"}, "bf16"),
        ({"strategy": "async", "dense_gradients_as": "fp32"}, "fp32"),
        ({"strategy": "sync", "dense_gradients_as": "bf16"}, "bf16"),
    ],
)
def test_dense_gradients_are_short_where_steps_are_not_exact_anyway(given: dict[str, Any], encoding: str) -> None:
    assert ClusterSettings(**given).dense_encoding == encoding
