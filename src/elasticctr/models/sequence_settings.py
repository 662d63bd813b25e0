"""Settings shared by models that read a sequence of values with a target in mind."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from elasticctr.config import Settings
from elasticctr.models.model import TowerSettings, Widths


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]


class AttentionSettings(Settings):
    """One sequence and what is looked for in it. Several names are read side by side, value by value."""

    sequence: Names = Field(description="a slot with pooling none, or a list of slots that go together")
    target: Names = Field(description="the pooled slot that is looked for, or one for each of the sequences")


class SequenceSettings(TowerSettings):
    hidden: Widths = Field((256, 128, 64), description="widths of the hidden layers of the tower")
    attention: tuple[AttentionSettings, ...] = Field(
        (), description="which sequence is read with which target; default: what the slots of the schema say"
    )
