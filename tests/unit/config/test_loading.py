"""A wrong key, type or value in a settings file is named with its place and the nearest good one."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from elasticctr.config import Settings, apply_overrides, load_yaml, parse_settings
from elasticctr.data.schema import Schema
from elasticctr.errors import ConfigError, NotFound
from elasticctr.train.cluster_settings import ClusterSettings


class Inner(Settings):
    learning_rate: float = 0.1


class Outer(Settings):
    name: str
    inner: Inner = Inner()


def test_an_unknown_key_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'inner.learning_rat'; did you mean 'learning_rate'\?"):
        parse_settings(Outer, {"name": "a", "inner": {"learning_rat": 1}}, "job.yaml")


def test_an_unknown_key_in_a_list_of_slots_is_answered_with_the_nearest() -> None:
    slots = [{"kind": "sparse", "name": "1", "poolin": "sum"}]
    with pytest.raises(ConfigError, match="did you mean 'pooling'"):
        parse_settings(Schema, {"slots": slots}, "schema.yaml")


def test_a_wrong_type_names_the_key_and_the_value() -> None:
    with pytest.raises(ConfigError, match=r"inner\.learning_rate: .*number.*'fast'"):
        parse_settings(Outer, {"name": "a", "inner": {"learning_rate": "fast"}}, "x")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match="'name' is required"):
        parse_settings(Outer, {}, "x")


def test_precedence_file_environment_override() -> None:
    settings = {"name": "file", "inner": {"learning_rate": 1}}
    environ = {"ELASTICCTR__INNER__LEARNING_RATE": "2", "ELASTICCTR__NAME": "env", "OTHER": "x"}
    assert apply_overrides(settings, [], environ) == {"name": "env", "inner": {"learning_rate": 2}}
    assert apply_overrides(settings, ["inner.learning_rate=3"], environ)["inner"] == {"learning_rate": 3}
    assert settings == {"name": "file", "inner": {"learning_rate": 1}}


@pytest.mark.parametrize("override", ["epochs", "name.deeper=1"])
def test_an_override_that_cannot_be(override: str) -> None:
    with pytest.raises(ConfigError):
        apply_overrides({"name": "a"}, [override], {})


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: 1\na: 2\n", "line 2: key 'a' is given twice"), ("a: [1", "not valid YAML"), ("- 1\n", "expected")],
)
def test_bad_yaml(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_yaml(path)


def test_binary_garbage_and_absence(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError):
        load_yaml(path)
    with pytest.raises(NotFound):
        load_yaml(tmp_path / "absent.yaml")


def test_a_misspelt_kind_is_answered_with_the_nearest_and_a_missing_one_is_the_default() -> None:
    with pytest.raises(ConfigError, match=r"'spars' is none of 'sparse', .*; did you mean 'sparse'\?"):
        parse_settings(Schema, {"slots": [{"name": "1", "kind": "spars"}]}, "schema.yaml")
    assert parse_settings(Schema, {"slots": [{"name": "1"}]}, "schema.yaml").sparse[0].name == "1"


class Plain(Settings):
    name: Literal["plain"] = "plain"
    rate: float = 1.0


class Fancy(Settings):
    name: Literal["fancy"] = "fancy"
    memory: float = 0.9


class Choice(Settings):
    way: Annotated[Plain | Fancy, Field(discriminator="name")] = Plain()


def test_a_key_of_another_member_of_a_union_is_not_suggested() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'way.plain.memory'; valid keys: name, rate"):
        parse_settings(Choice, {"way": {"name": "plain", "memory": 0.5}}, "job.yaml")


@pytest.mark.promise(
    "a setting is nan, or one of its words is misspelt", "ConfigError says what is wrong and names the nearest word"
)
def test_numbers_are_finite_and_a_misspelt_choice_is_answered_with_the_nearest() -> None:
    for value in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ConfigError, match=r"chunk_mib: Input should be a finite number \(got -?(nan|inf)\)"):
            parse_settings(ClusterSettings, {"chunk_mib": value}, "job.yaml")
    with pytest.raises(ConfigError, match=r"strategy: 'asinc' is none of .*; did you mean 'async'\?"):
        parse_settings(ClusterSettings, {"strategy": "asinc"}, "job.yaml")
    with pytest.raises(ConfigError, match=r"strategy: 'zzz' is none of .*'collective'$"):
        parse_settings(ClusterSettings, {"strategy": "zzz"}, "job.yaml")
