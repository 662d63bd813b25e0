"""Settings of the data section: mistakes, and a default for every documented key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elasticctr.config import parse_settings
from elasticctr.data.settings import DataSettings
from elasticctr.errors import ConfigError

GUIDE = Path(__file__).parents[3] / "docs" / "reference" / "data.md"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "'path' is required"),
        ({"path": "x", "shufle_rows": 3}, "unknown key 'shufle_rows'; did you mean 'shuffle_rows'"),
        ({"path": "x", "fraction": [0.5, 0.5]}, r"fraction must be \[from, to\)"),
        ({"path": "x", "fraction": [0, 1.5]}, r"fraction must be \[from, to\)"),
        ({"path": "x", "start": "20200401"}, "start and end go together"),
        ({"path": "x", "on_bad": "ignore"}, "on_bad"),
        ({"path": "x", "prefetch": -1}, "prefetch"),
    ],
)
def test_mistakes(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_settings(DataSettings, settings, "job.yaml")


def test_one_path_or_several() -> None:
    assert DataSettings(path="a").path == "a"
    assert DataSettings.model_validate({"path": ["a", "b"]}).path == ("a", "b")


def test_every_key_is_documented_with_its_default() -> None:
    rows = dict(re.findall(r"^\| (`[^|]+`) \| *([^|]*?) *\|", GUIDE.read_text(), re.MULTILINE))
    documented = {name for keys in rows for name in re.findall(r"`(\w+)`", keys)}
    for name, field in DataSettings.model_fields.items():
        assert name in documented
        assert field.description
    assert rows["`max_bad_fraction`"] == str(DataSettings(path="x").max_bad_fraction)
    assert rows["`prefetch`"] == str(DataSettings(path="x").prefetch)
    assert rows["`retries`"] == str(DataSettings(path="x").retries)
