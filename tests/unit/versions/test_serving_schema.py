"""schema.json of a version: sizes that memory is reserved by are checked when it is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.serve.making import make_schema

from elasticctr.errors import Corruption
from elasticctr.versions.serving_schema import parse_serving_schema


def parse(**changes: Any) -> None:
    parse_serving_schema(json.dumps(json.loads(make_schema().model_dump_json()) | changes).encode(), "schema.json")


@pytest.mark.promise("a schema.json with sizes of gigabytes", "Corruption when it is read, before memory is reserved")
@pytest.mark.parametrize("name", ["pooled_width", "dense_width"])
@pytest.mark.parametrize("width", [100_000_000, -1])
def test_a_width_beyond_its_columns_is_refused(name: str, width: int) -> None:
    parse()
    with pytest.raises(Corruption, match=f"schema.json: .*{name} is {width}"):
        parse(**{name: width})


def test_a_table_with_rows_of_megabytes_is_refused() -> None:
    with pytest.raises(Corruption, match="dim"):
        parse(tables={"embedding": {"dim": 100_000_000}})
