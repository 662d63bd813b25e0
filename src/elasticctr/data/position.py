"""A position in a sample set, exact to the sample, as a checkpoint stores it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from elasticctr.data.formats.readers import FilePlace
from elasticctr.errors import FailedPrecondition

State = dict[str, Any]  # JSON-able


@dataclass(frozen=True, slots=True)
class Position:
    """Samples are mixed window by window. A window starts at a place in the files; some of it is used already."""

    file: int = 0
    offset: int = 0
    line: int = 1
    window: int = 0  # windows before this one
    used: int = 0  # samples of this window given out
    samples: int = 0  # samples given out since the start of the epoch
    lines_read: int = 0  # lines, samples and bad lines before this window
    samples_read: int = 0
    bad_read: int = 0

    @property
    def place(self) -> FilePlace:
        return FilePlace(self.file, self.offset, self.line)

    def dump(self, epoch: int, identity: str) -> State:
        """`identity` stands for everything the order of samples depends on."""
        # Spelled out: every batch carries its state, and dataclasses.asdict takes twenty times as long.
        return {
            "data": identity,
            "epoch": epoch,
            "file": self.file,
            "offset": self.offset,
            "line": self.line,
            "window": self.window,
            "used": self.used,
            "samples": self.samples,
            "lines_read": self.lines_read,
            "samples_read": self.samples_read,
            "bad_read": self.bad_read,
        }

    @classmethod
    def load(cls, state: State, epoch: int, identity: str) -> Position:
        try:
            position = cls(**{field.name: int(state[field.name]) for field in fields(cls)})
            saved_identity, saved_epoch = state["data"], state["epoch"]
        except (KeyError, TypeError, ValueError):
            raise FailedPrecondition("not a position in a sample set; start from the beginning") from None
        if saved_identity != identity:
            raise FailedPrecondition(
                "the position belongs to other data: files, schema, seed or reading options are not those it was "
                "saved with. Restore them, or start from the beginning"
            )
        if saved_epoch != epoch:
            raise FailedPrecondition(f"the position is in epoch {saved_epoch}, not in epoch {epoch}")
        return position
