"""The journal of a run's ledger: what happened to chunks and members, one JSON line each, synced before it is answered.

Each line carries a CRC-32C of the line before it, so that a damaged or missing one is noticed. A coordinator that takes
over writes a new journal under the same name: whatever its predecessor still appends goes to a file nobody reads, and
the predecessor notices at its next line.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from elasticctr import _native
from elasticctr.errors import Corruption, FailedPrecondition, InternalError, Unavailable
from elasticctr.storage.atomic import is_disk_full, write_atomic

Line = dict[str, Any]
NAME = "journal.jsonl"


class LedgerJournal:
    """Open for appending. Not for use by several threads at once."""

    def __init__(self, path: Path, last: int, crc: int, size: int) -> None:
        self.path = path
        self._n = last
        self._crc = crc
        self._size = size
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._inode = os.fstat(self._fd).st_ino

    @classmethod
    def take_over(cls, path: Path) -> tuple[LedgerJournal, list[Line]]:
        """The journal at `path`, made if there is none, with every line so far. No one else may append to it."""
        lines, data = read_journal(path)
        write_atomic(path, data)
        crc = _native.crc32c(data[data.rfind(b"\n", 0, -1) + 1 : -1]) if data else 0
        return cls(path, int(lines[-1]["n"]) if lines else 0, crc, len(data)), lines

    def append(self, event: str, values: Mapping[str, Any]) -> None:
        """On disk when it returns. Unavailable while the disk is full; FailedPrecondition once superseded."""
        self.check()
        line = {"n": self._n + 1, "at": round(time.time(), 3), "event": event, **values, "c": self._crc}
        text = json.dumps(line, separators=(",", ":")).encode()
        data = text + b"\n"
        try:
            written = os.write(self._fd, data)
            if written < len(data):
                raise OSError(28, "No space left on device")
            os.fdatasync(self._fd)
        except OSError as e:
            self._cut_off()
            if is_disk_full(e):
                raise Unavailable(f"{self.path}: the disk is full; free some space, and work continues", 2.0) from None
            raise InternalError(f"{self.path}: cannot be written: {e.strerror or e}") from None
        self._n += 1
        self._size += len(data)
        self._crc = _native.crc32c(text)

    @property
    def size(self) -> int:
        """In bytes."""
        return self._size

    def shorten(self, choose: Callable[[Sequence[Line]], Sequence[Line]]) -> None:
        """Replaces the journal, in one moment, by the lines that `choose` takes of it."""
        self.check()
        crc, count = 0, 0
        pieces = []
        for count, line in enumerate(choose(read_journal(self.path)[0]), 1):
            text = json.dumps({**line, "n": count, "c": crc}, separators=(",", ":")).encode()
            pieces.append(text + b"\n")
            crc = _native.crc32c(text)
        data = b"".join(pieces)
        write_atomic(self.path, data)
        os.close(self._fd)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self._inode = os.fstat(self._fd).st_ino
        self._n, self._crc, self._size = count, crc, len(data)

    def check(self) -> None:
        """Raises FailedPrecondition if another coordinator has taken the run over."""
        try:
            is_own = self.path.stat().st_ino == self._inode
        except OSError:
            is_own = False
        if not is_own:
            raise FailedPrecondition(f"{self.path}: another coordinator has taken this run over; this one ends")

    def close(self) -> None:
        os.close(self._fd)

    def _cut_off(self) -> None:
        with suppress(OSError):  # a reader cuts off half a line too
            os.ftruncate(self._fd, self._size)


def read_journal(path: Path) -> tuple[list[Line], bytes]:
    """Every whole line, and their bytes. A torn last line is left out; Corruption for damage before it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], b""
    except OSError as e:
        raise InternalError(f"{path}: cannot be read: {e.strerror or e}") from None
    lines: list[Line] = []
    start, crc = 0, 0
    while (end := data.find(b"\n", start)) >= 0:
        text = data[start:end]
        line = _parse(text)
        if line is None and end + 1 == len(data):
            break
        if line is None or line["c"] != crc or line["n"] != len(lines) + 1:
            raise Corruption(
                f"{path}:{len(lines) + 1}: damaged; remove the ledger directory to resume from the newest checkpoint"
            )
        lines.append(line)
        crc = _native.crc32c(text)
        start = end + 1
    return lines, data[:start]


def _parse(text: bytes) -> Line | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    is_line = isinstance(line, dict) and isinstance(line.get("n"), int) and isinstance(line.get("event"), str)
    return line if is_line and isinstance(line.get("c"), int) else None
