"""Table settings: mistakes are ConfigErrors that say where, and every field has a description."""

from typing import Any

import pytest
from pydantic import BaseModel

from elasticctr.config import parse_settings
from elasticctr.errors import ConfigError
from elasticctr.table import TableSettings, settings


def parse(**segment: Any) -> TableSettings:
    return parse_settings(TableSettings, {"segments": [{"dim": 4, **segment}]}, "job.yaml")


def test_defaults() -> None:
    table = parse()
    assert table.segments[0].optimizer.name == "adam"
    assert table.segments[0].initializer.name == "uniform"
    assert table.admission.count == 1


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        ({"optimizer": {"name": "adamm"}}, "adamm"),
        ({"optimizer": {"name": "adam", "learning_rat": 1}}, "did you mean 'learning_rate'"),
        ({"optimizer": {"name": "adam", "learning_rate": -1}}, "greater than 0"),
        ({"optimizer": {"name": "adam", "beta1": 1.0}}, "less than 1"),
        ({"optimizer": {"name": "sgd", "beta1": 0.5}}, "unknown key"),
        ({"initializer": {"name": "uniform", "low": 1, "high": 0}}, "must not be above"),
        ({"dim": 0}, "greater than or equal to 1"),
    ],
)
def test_mistakes_say_where(segment: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(**segment)


def test_contradictions_are_refused() -> None:
    with pytest.raises(ConfigError, match="declared twice"):
        parse_settings(TableSettings, {"segments": [{"dim": 1}, {"dim": 2}]}, "job.yaml")
    with pytest.raises(ConfigError, match="give only one"):
        both = {"segments": [{"dim": 1}], "admission": {"count": 2, "probability": 0.5}}
        parse_settings(TableSettings, both, "job.yaml")


def test_every_field_is_described() -> None:
    for cls in vars(settings).values():
        if isinstance(cls, type) and issubclass(cls, BaseModel) and cls.__module__ == settings.__name__:
            for name, field in cls.model_fields.items():
                assert name == "name" or field.description, f"{cls.__name__}.{name} has no description"
