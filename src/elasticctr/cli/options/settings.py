"""Options that mirror a field of a settings class: help, bounds and default are the field's."""

from __future__ import annotations

from typing import Any

import typer
from annotated_types import Ge, Le
from pydantic import BaseModel


def setting(cls: type[BaseModel], name: str, *flags: str, metavar: str | None = None) -> Any:
    """For a parameter whose default None means that the settings file, or else the class, decides."""
    field = cls.model_fields[name]
    bounds = {type(bound): bound for bound in field.metadata}
    low, high = bounds.get(Ge), bounds.get(Le)
    default = field.default
    return typer.Option(
        *flags,
        metavar=metavar,
        help=as_sentence(field.description or ""),
        min=None if low is None else low.ge,
        max=None if high is None else high.le,
        show_default=str(default) if isinstance(default, (int, float, str)) and not isinstance(default, bool) else True,
    )


def default_of(cls: type[BaseModel], name: str) -> Any:
    return cls.model_fields[name].default


def as_sentence(text: str) -> str:
    """Capitalized, unless it begins with a file name or the like."""
    first = text.partition(" ")[0]
    return f"{text[:1].upper() if first.isalpha() else text[:1]}{text[1:]}."
