"""What a model is told of the sequences of a schema."""

from __future__ import annotations

from typing import Any

import pytest

from elasticctr.data.schema import Schema
from elasticctr.models.model import InputNeeds
from elasticctr.train.input_plan import make_input_spec

PAST: dict[str, Any] = {"name": "past", "pooling": "none", "max_values": 5}


@pytest.mark.parametrize(
    ("slots", "target"),
    [
        ([{"name": "item"}, {"name": "user"}, {**PAST, "target": "item"}], "item"),
        ([{"name": "item"}, PAST], "item"),  # the only slot of its table
        ([{"name": "item"}, {"name": "user"}, PAST], None),  # could be either
        ([{"name": "item", "table": "items"}, {"name": "user"}, {**PAST, "table": "items"}], "item"),
        ([{"name": "item", "dim": 3}, {"name": "user"}, PAST], "user"),  # of another width: other rows
    ],
)
def test_the_target_of_a_sequence(slots: list[dict[str, Any]], target: str | None) -> None:
    (sequence,) = make_input_spec(Schema.model_validate({"slots": slots}), InputNeeds(8, False)).sequences
    assert (sequence.name, sequence.dim, sequence.max_values, sequence.target) == ("past", 8, 5, target)
