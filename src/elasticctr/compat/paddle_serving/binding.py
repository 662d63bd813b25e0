"""Binds the fields of a text-format message to a frozen dataclass by its annotations.

Annotations may be str, int, float, bool, Literal of words (an enum), another such class, any of them `| None`,
`tuple[…, ...]` of them (repeated) and `dict[str, str]` (a map). A field without a default is required. Every
class has `given`, the line of each field that the file has. Every mistake is a ConfigError `FILE:LINE: …`.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from elasticctr.compat.paddle_serving.text_format import Field, Message, Word
from elasticctr.errors import ConfigError

T = TypeVar("T", bound="Bound")

_INT32 = range(-(1 << 31), 1 << 31)
_TRUTH: dict[object, bool] = {"true": True, "t": True, 1: True, "false": False, "f": False, 0: False}
_EXPECTED = {str: "text in quotes", int: "a whole number", float: "a number", bool: "true or false"}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """Base of what `bind` makes. `source` is the file, `line` the line on which the message begins."""

    source: str = ""
    line: int = 0
    given: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def where(self, name: str | None = None) -> str:
        return f"{self.source}:{self.line if name is None else self.given.get(name, self.line)}"


def bind(cls: type[T], message: Message) -> T:
    kinds = _kinds(cls)
    values: dict[str, Any] = {}
    given: dict[str, int] = {}
    for field in message.fields:
        if field.name not in kinds:
            near = difflib.get_close_matches(field.name, kinds, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(kinds))}"
            raise _mistake(message, field.line, f"no field {field.name!r} in {_name(cls)}{hint}")
        kind = kinds[field.name]
        if get_origin(kind) is tuple:
            values[field.name] = (*values.get(field.name, ()), _value(get_args(kind)[0], field, message))
        elif get_origin(kind) is dict:
            entry = bind(_MapEntry, _inner(field, message))
            values.setdefault(field.name, {})[entry.key] = entry.value
        elif field.name in values:
            raise _mistake(
                message, field.line, f"{field.name!r} occurs twice; the first is in line {given[field.name]}"
            )
        else:
            values[field.name] = _value(kind, field, message)
        given.setdefault(field.name, field.line)
    for own in dataclasses.fields(cls):
        is_required = own.default is dataclasses.MISSING and own.default_factory is dataclasses.MISSING
        if is_required and own.name not in values:
            raise _mistake(message, message.line, f"{_name(cls)} needs {own.name!r}")
    return cls(**values, source=message.source, line=message.line, given=given)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _MapEntry(Bound):
    """An entry of a map."""

    key: str
    value: str


def _kinds(cls: type[Bound]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    kinds = {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.name not in _OWN}
    return {name: _without_none(kind) for name, kind in kinds.items()}


_OWN = {field.name for field in dataclasses.fields(Bound)}


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (one for one in get_args(kind) if one is not type(None))
    return kind


def _value(kind: Any, field: Field, message: Message) -> Any:
    value = field.value
    if isinstance(kind, type) and issubclass(kind, Bound):
        return bind(kind, _inner(field, message))
    if get_origin(kind) is Literal:
        if isinstance(value, Word) and value.text in get_args(kind):
            return value.text
        raise _mistake(message, field.line, f"{field.name!r} is none of {', '.join(get_args(kind))}")
    plain = value.text.lower() if isinstance(value, Word) else value
    if kind is bool and not isinstance(value, str) and plain in _TRUTH:
        return _TRUTH[plain]
    if kind is str and isinstance(value, str):
        return value
    if kind is int and isinstance(value, int) and value in _INT32:
        return value
    if kind is float and isinstance(value, (int, float)):
        return float(value)
    raise _mistake(message, field.line, f"{field.name!r} is {_shown(value)}, expected {_EXPECTED[kind]}")


def _inner(field: Field, message: Message) -> Message:
    if not isinstance(field.value, Message):
        raise _mistake(message, field.line, f"{field.name!r} is {_shown(field.value)}, expected {{ … }}")
    return field.value


def _shown(value: object) -> str:
    if isinstance(value, Message):
        return "a message"
    return value.text if isinstance(value, Word) else repr(value)


def _name(cls: type[Bound]) -> str:
    return (cls.__doc__ or cls.__name__).split(":")[0].split(".")[0]


def _mistake(message: Message, line: int, what: str) -> ConfigError:
    return ConfigError(f"{message.source}:{line}: {what}")
