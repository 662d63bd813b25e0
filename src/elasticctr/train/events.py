"""The event log of a run: one JSON object per line, only ever appended to.

Trainers write it; plots and reports read it. Every line is flushed when written, so a killed process leaves all but at
most its last line; a torn last line is skipped when reading and cut off when the run resumes. After a resume from the
checkpoint of step n, events of later steps are cut off, because those steps are about to happen again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from elasticctr.errors import DataError, InternalError, NotFound
from elasticctr.obs.plain import plain
from elasticctr.storage.atomic import write_atomic

Event = dict[str, Any]


class EventWriter:
    """Appends events to `path`. `resume_step`: keep the events up to that step; None: start an empty log."""

    def __init__(self, path: str | Path, resume_step: int | None = None) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if resume_step is None:
            self.path.write_bytes(b"")
        elif self.path.exists():
            _cut_after(self.path, resume_step)
        self._file = self.path.open("ab", buffering=0)

    def write(self, event: str, step: int, samples: int, epoch: float, values: Mapping[str, object]) -> None:
        """Appends one event. Numbers that JSON cannot hold (NaN, infinity) become null."""
        record = {"event": event, "time": round(time.time(), 3), "step": step, "epoch": epoch, "samples": samples}
        record |= {name: plain(value) for name, value in values.items()}
        line = json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"
        try:
            # One unbuffered write per line: a reader sees whole lines, and a full disk is noticed here.
            self._file.write(line.encode())
        except OSError as e:
            raise InternalError(
                f"{self.path}: cannot write the event log: {e.strerror}; free some space, then resume"
            ) from e

    def close(self) -> None:
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_events(path: str | Path, event: str | None = None) -> list[Event]:
    """All events of a log, or those of one kind. Raises NotFound, and DataError for a damaged line before the last."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{path}: there is no event log here; is this a run directory?") from None
    return [record for _, record in _records(path, data) if event is None or record["event"] == event]


def _records(path: Path, data: bytes) -> Iterator[tuple[int, Event]]:
    """(end of line, event) for every whole line."""
    start = 0
    for number, line in enumerate(data.split(b"\n"), start=1):
        end = start + len(line) + 1
        is_last = end > len(data)  # without a newline: torn, or nothing at all
        start = end
        if is_last or not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("event"), str):
            raise DataError("this line is not an event; repair or remove it", path, number)
        yield end, record


def _cut_after(path: Path, step: int) -> None:
    """Rewrites the log without torn lines and without events past `step`, atomically."""
    data = path.read_bytes()
    kept: list[bytes] = []
    start = 0
    for end, record in _records(path, data):
        if not isinstance(record.get("step"), int) or record["step"] <= step:
            kept.append(data[start:end])
        start = end
    write_atomic(path, b"".join(kept))
