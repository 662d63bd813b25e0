"""Writes samples by the hour of their request (UTC): out/20261115/16/part-000001.txt, read as `logs/{date}/{hour}`."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from elasticctr.storage.atomic import put
from elasticctr.storage.filesystem import explain

DONEFILE = "donefile"
_BUFFER_BYTES = 8 << 20


def hour_of(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y%m%d/%H")


class HourFiles:
    """One file `part` per hour, and one of late clicks. All of them appear with `commit`, or none."""

    def __init__(self, out: Path, part: str, late: str | None) -> None:
        self._out = out
        self._part = part
        self._late = late
        self._buffers: dict[str, list[bytes]] = defaultdict(list)
        self._buffered = 0
        self._begun: set[str] = set()
        self.hours: set[str] = set()
        self.written: list[str] = []

    def write(self, time_s: float, line: bytes) -> None:
        hour = hour_of(time_s)
        self.hours.add(hour)
        self._add(f"{hour}/{self._part}", line)

    def write_late(self, event: dict[str, Any]) -> None:
        if self._late is not None:
            self._add(self._late, json.dumps(event).encode() + b"\n")

    def commit(self) -> None:
        self._flush()
        for name in sorted(self._begun):
            temporary = self._temporary(name)
            try:
                put(temporary, self._out / name)
            except OSError as e:
                raise explain(e, str(temporary)) from None
            self.written.append(name)

    def __enter__(self) -> HourFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for name in self._begun:
            self._temporary(name).unlink(missing_ok=True)

    def _add(self, name: str, line: bytes) -> None:
        self._buffers[name].append(line)
        self._buffered += len(line) + 50
        if self._buffered > _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        for name, lines in self._buffers.items():
            temporary = self._temporary(name)
            try:
                temporary.parent.mkdir(parents=True, exist_ok=True)
                # A file that a killed run left under this name is not part of this run.
                with temporary.open("ab" if name in self._begun else "wb") as file:
                    self._begun.add(name)
                    file.write(b"".join(lines))
            except OSError as e:
                raise explain(e, str(temporary)) from None
        self._buffers.clear()
        self._buffered = 0

    def _temporary(self, name: str) -> Path:
        path = self._out / name
        return path.with_name(f".{path.name}.writing")
