"""Donefiles of Paddle's cube tools: `base.txt` and `patch.txt`, append-only JSON lines `{"id", "key", "input"}`.

`id` names the build, `key` the base it depends on (a base's own id), `input` the directory of its SequenceFiles.
Lines that are not such objects are reported and skipped. A last line without a newline does not count yet.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from elasticctr.storage import Source, Store

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
    problems: tuple[str, ...]  # messages: which line was skipped and why
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


def append_donefile(store: Store, name: str, line: DoneLine) -> None:
    """Adds one line in one write. First closes a line that another writer left unfinished."""
    unfinished = False
    if store.exists(name) and store.size(name) > 0:
        with store.open(name) as file:
            file.seek(-1, os.SEEK_END)
            unfinished = file.read(1) != b"\n"
    store.append(name, (b"\n" if unfinished else b"") + line.encode())


def _parse_line(text: bytes) -> DoneLine | str:
    """The line, or what is wrong with it. Accepts numbers as id and key: some tools write them without quotes."""
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
