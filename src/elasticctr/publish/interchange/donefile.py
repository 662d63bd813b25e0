"""Donefiles of older cube tools: `base.txt` and `patch.txt`, append-only, one JSON line `{"id", "key", "input"}` each.

`id` names the build, `key` the base it stands on (a base's own id), `input` the directory of its SequenceFiles. Reading
takes what is there: lines that are no such object are reported and skipped, a last line without newline is not there
yet.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from elasticctr.data.sources import Source
from elasticctr.errors import ConfigError, InternalError

BASE = "base.txt"
PATCH = "patch.txt"
_READ_BYTES = 1 << 20
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class DoneLine:
    id: str
    key: str
    input: str

    def encode(self) -> bytes:
        return json.dumps({"id": self.id, "key": self.key, "input": self.input}).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Donefile:
    lines: tuple[DoneLine, ...]
    problems: tuple[str, ...]  # for people: which line was skipped and why
    is_unfinished: bool  # the last line has no newline yet


def read_donefile(file: Source) -> Donefile:
    """Raises NotFound if there is none."""
    data, buffer = b"", memoryview(bytearray(_READ_BYTES))
    with file.open() as stream:
        while (filled := stream.read_into(buffer)) and len(data) < _MAX_BYTES:
            data += bytes(buffer[:filled])
    return parse_donefile(data)


def parse_donefile(data: bytes) -> Donefile:
    *complete, last = data.split(b"\n")
    lines, problems = [], []
    for number, text in enumerate(complete, 1):
        if not text.strip():
            continue
        parsed = _parse_line(text)
        if isinstance(parsed, DoneLine):
            lines.append(parsed)
        else:
            problems.append(f"line {number}: {parsed}")
    return Donefile(tuple(lines), tuple(problems), bool(last.strip()))


def append_donefile(path: Path, line: DoneLine) -> None:
    """Adds one line, whole, synced. Writers wait for each other; a line some writer left unfinished is closed first, so
    that it spoils no other."""
    if "\n" in line.input:
        raise ConfigError("a path with a line break cannot stand in a donefile")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            unfinished = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            data = (b"\n" if unfinished else b"") + line.encode()
            if os.write(descriptor, data) != len(data):
                raise InternalError(f"{path}: the disk is full; make room and run it again")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as e:
        raise InternalError(f"{path}: cannot be written: {e.strerror or e}") from None


def _parse_line(text: bytes) -> DoneLine | str:
    """The line, or what is wrong with it. Numbers are taken for id and key: some tools write them without quotes."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "is not JSON"
    if not isinstance(value, dict):
        return "is not a JSON object"
    fields = {}
    for name in ("id", "key", "input"):
        field = value.get(name)
        if isinstance(field, int) and not isinstance(field, bool) and name != "input":
            field = str(field)
        if not isinstance(field, str) or not field:
            return f"has no {name}"
        fields[name] = field
    return DoneLine(**fields)
