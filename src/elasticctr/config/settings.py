"""The base of every settings class: frozen; unknown keys are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Discriminator


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


def tagged_by(key: str, default: str) -> Discriminator:
    """Picks the member of a union of tagged settings by `key`, or the one tagged `default` if it is missing."""

    def tag_of(value: Any) -> str:
        found = value.get(key, default) if isinstance(value, Mapping) else getattr(value, key, default)
        return str(found)

    return Discriminator(tag_of)
