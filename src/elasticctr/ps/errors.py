"""Failed preconditions of the parameter servers that callers act on, raised by the native client."""

from __future__ import annotations

from elasticctr.errors import FailedPrecondition


class CursorError(FailedPrecondition):
    """A push did not begin where its chunk's cursor stands on a pserver: another trainer has the chunk, or a rollback
    moved it. Drop what is queued, ask for the cursors and continue from the smallest, or give the chunk back."""

    def __init__(self, message: str, chunk: int, shard: int, cursor: int) -> None:
        self.chunk = chunk
        self.shard = shard
        self.cursor = cursor
        super().__init__(message)


class EraError(FailedPrecondition):
    """The job went back to a checkpoint after this work was begun: the rows it pulled and the cursors it knows are of a
    state that is gone. Drop all that is under way and continue in `era`, the pserver's."""

    def __init__(self, message: str, era: int) -> None:
        self.era = era
        super().__init__(message)
