"""Reads YAML settings. Precedence: default < file < ELASTICCTR__SECTION__KEY < command-line override.

Every mistake becomes one ConfigError that names the file, the key and, for an unknown key, the nearest valid one.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from elasticctr.errors import ConfigError, NotFound

S = TypeVar("S", bound=BaseModel)

ENV_PREFIX = "ELASTICCTR__"


class _StrictLoader(yaml.SafeLoader):
    """Refuses a repeated key; YAML's own loader silently keeps the last one."""


def _construct_mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in mapping:
            raise ConfigError(f"line {key_node.start_mark.line + 1}: key {key!r} is given twice; keep one of them")
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)


def read_settings_file(path: str | Path) -> str:
    """Raises NotFound and ConfigError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path}: cannot be read as a settings file: {e}") from None


def load_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    text = read_settings_file(path)
    try:
        loaded = yaml.load(text, Loader=_StrictLoader)
    except ConfigError as e:
        raise ConfigError(f"{path}: {e}") from None
    except yaml.YAMLError as e:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(e).split())}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path}: expected 'key: value' settings, found a {type(loaded).__name__}")
    return loaded


def apply_overrides(
    settings: Mapping[str, Any], overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A copy of `settings` changed by environment variables and then by `a.b=value` overrides."""
    result: dict[str, Any] = _copy(settings)
    for name, text in sorted((os.environ if environ is None else environ).items()):
        if name.startswith(ENV_PREFIX):
            _assign(result, name.removeprefix(ENV_PREFIX).lower().split("__"), text, name)
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator:
            raise ConfigError(f"override {override!r} is not of the form key=value, for example train.epochs=3")
        _assign(result, key.split("."), text, override)
    return result


def parse_settings(cls: type[S], settings: Mapping[str, Any], source: str) -> S:
    """`settings` as a `cls`. `source` names the file in messages."""
    try:
        return cls.model_validate(dict(settings))
    except ValidationError as e:
        lines = [_explain(cls, error) for error in e.errors(include_url=False)]
        raise ConfigError(f"{source}: " + "; ".join(lines)) from None


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copy(v) for k, v in value.items()}
    return value


def _assign(settings: dict[str, Any], keys: Sequence[str], text: str, source: str) -> None:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    target = settings
    for key in keys[:-1]:
        inner = target.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{source}: {key!r} is not a section, so nothing can be set inside it")
        target = inner
    target[keys[-1]] = value


def _explain(cls: type[BaseModel], error: Any) -> str:
    path = [part for part in error["loc"] if not (isinstance(part, str) and part.startswith("function-"))]
    where = ".".join(str(part) for part in path) or "settings"
    if error["type"] == "extra_forbidden":
        names = _valid_keys(cls, path[:-1])
        close = difflib.get_close_matches(str(path[-1]), names, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"valid keys: {', '.join(sorted(names))}"
        return f"unknown key {where!r}; {hint}"
    if error["type"] == "missing":
        return f"{where!r} is required"
    if error["type"] == "union_tag_invalid":
        tag, expected = str(error["ctx"]["tag"]), str(error["ctx"]["expected_tags"])
        close = difflib.get_close_matches(repr(tag), expected.split(", "), n=1, cutoff=0.5)
        return f"{where}: {tag!r} is none of {expected}" + (f"; did you mean {close[0]}?" if close else "")
    if error["type"] == "literal_error" and isinstance(error.get("input"), str):
        given, expected = str(error["input"]), str(error["ctx"]["expected"])
        choices = expected.replace(" or ", ", ").split(", ")
        close = difflib.get_close_matches(repr(given), choices, n=1, cutoff=0.5)
        return f"{where}: {given!r} is none of {expected}" + (f"; did you mean {close[0]}?" if close else "")
    message = str(error["msg"]).removeprefix("Value error, ")
    given = error.get("input")
    shown = f" (got {given!r})" if isinstance(given, (str, int, float, bool)) or given is None else ""
    return f"{where}: {message}{shown}"


def _valid_keys(cls: type[BaseModel], path: Sequence[Any]) -> list[str]:
    """The field names of the settings class at `path` below `cls`; of unions without a tag those of all members."""
    classes: list[type[BaseModel]] = [cls]
    for part in path:
        found: list[type[BaseModel]] = []
        for current in classes:
            if isinstance(part, str) and part in current.model_fields:
                found += _classes_in(current.model_fields[part].annotation)
        tagged = [c for c in classes if any(field.default == part for field in c.model_fields.values())]
        # Positions in lists and keys of mappings stay within the same candidates.
        classes = found or tagged or classes
    return sorted({name for current in classes for name in current.model_fields})


def _classes_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [c for inner in getattr(annotation, "__args__", ()) for c in _classes_in(inner)]
