"""What a server remembers of a model across restarts: what it serves, and what users decided by hand.

Rewritten as a whole after every change. A file that cannot be read is ignored; the donefile decides then.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elasticctr.obs import console
from elasticctr.serve.settings import ModelVariantSettings
from elasticctr.storage.atomic import write_atomic

STATE = "state.json"


class Decisions(BaseModel):
    """Made by users over the API. `variants` None means those of the settings."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    is_paused: bool = False
    held: int | None = Field(None, ge=1)  # served regardless of the donefile
    variants: tuple[ModelVariantSettings, ...] | None = None
    sticky: str | None = None


class ServedState(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    history: tuple[int, ...] = ()  # versions served one after the other; the last is live
    reload_stamp: str = ""  # of reload_meta when a version was last adopted
    decisions: Decisions = Decisions()


def read_state(directory: Path) -> ServedState:
    path = directory / STATE
    try:
        return ServedState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return ServedState()
    except (OSError, ValidationError) as e:
        console.warn(f"{path}: cannot be read; decisions made by hand are lost: {str(e).splitlines()[0]}")
        return ServedState()


def write_state(directory: Path, state: ServedState) -> None:
    write_atomic(directory / STATE, state.model_dump_json().encode())
