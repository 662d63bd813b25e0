"""What a schema refuses to say about sequences and their targets, and about transforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticctr.config import parse_settings
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Schema
from elasticctr.errors import ConfigError

ITEM: dict[str, Any] = {"name": "item"}
PAST: dict[str, Any] = {"name": "past", "pooling": "none", "target": "item"}


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ([ITEM, {**PAST, "pooling": "mean"}], "only a sequence"),
        ([ITEM, {**PAST, "target": "itm"}], "its target 'itm' is not a pooled sparse slot"),
        ([{**ITEM, "pooling": "none"}, PAST], "its target 'item' is not a pooled sparse slot"),
        ([{**ITEM, "table": "items"}, PAST], "need the same table and dim"),
        ([ITEM, {**PAST, "dim": 4}], "need the same table and dim"),
    ],
)
def test_a_target_must_fit(slots: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_settings(Schema, {"slots": slots}, "schema")


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ({"transform": "scale", "diff": [1, 2]}, "needs 2 values in min and in diff"),
        ({"transform": "scale", "min": [0, 0], "diff": [1]}, "needs 2 values in min and in diff"),
        ({"transform": "log1p", "diff": [10]}, "has 1 values in diff, not 2"),
        ({"transform": "log1p", "min": [0, 0], "diff": [1, 1]}, "min goes with transform: scale"),
        ({"diff": [1, 1]}, "diff goes with transform: scale or log1p"),
        ({"transform": "log1p", "diff": [1, 0]}, "diff no 0"),
        ({"transform": "log1p", "diff": [1, float("nan")]}, "finite number"),
        ({"transform": "scale", "min": [0, float("inf")], "diff": [1, 1]}, "finite number"),
    ],
)
def test_a_transform_must_fit(transform: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_settings(Schema, {"slots": [ITEM, {"kind": "dense", "name": "x", "dim": 2, **transform}]}, "schema")


def test_buckets_need_a_positive_diff() -> None:
    price = {"kind": "dense", "name": "price", "transform": "log1p", "diff": [-1]}
    bucket = {"kind": "bucket", "name": "price_bucket", "of": "price", "by": "log2"}
    with pytest.raises(ConfigError, match="positive diff in 'price'"):
        parse_settings(Schema, {"slots": [price, bucket]}, "schema")


def test_a_target_changes_the_fingerprint() -> None:
    plain = {**PAST, "target": None}
    assert Schema.model_validate({"slots": [ITEM, PAST]}).fingerprint() != (
        Schema.model_validate({"slots": [ITEM, plain]}).fingerprint()
    )


def test_columns_of_a_sequence_are_hashed_like_its_target(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("click,item,past\n1,x,y|x|z|x\n0,y,\n")
    past = {**PAST, "separator": "|", "max_values": 3}
    schema = Schema.model_validate({"format": "csv", "slots": [ITEM, past]})
    with Dataset(str(tmp_path / "log.csv"), schema).iterate(10) as batches:
        (batch,) = batches
    items, _ = batch.slot(0)
    values, offsets = batch.slot(1)
    assert offsets.tolist() == [0, 3, 3]
    assert values[0] == values[2] == items[0]
    assert values[1] not in items
