"""Settings shared by models that read a sequence together with a target."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from elasticctr.config import Settings
from elasticctr.models.model import TowerSettings, Widths


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]


class AttentionSettings(Settings):
    """One sequence and its target. Several slots are concatenated and read as one."""

    sequence: Names = Field(description="a slot with pooling none, or a list of slots that belong together")
    target: Names = Field(description="the pooled slot to compare its values with, or one for each of the sequences")


class SequenceSettings(TowerSettings):
    hidden: Widths = Field((256, 128, 64), description="widths of the tower's hidden layers")
    attention: tuple[AttentionSettings, ...] = Field(
        (), description="sequences and their targets; default: the targets in the schema"
    )
