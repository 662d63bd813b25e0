"""The donefile: an append-only log of JSON lines that announces versions and rollbacks.

A line without its newline does not count yet. Readers skip lines that are blank, damaged or foreign, but removal.py
refuses to remove anything then. docs/formats/version.md is the specification.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from elasticctr import _native

DONEFILE = "donefile"
UNFINISHED = b" #unfinished"  # closes a line whose writer died; its version was never announced
_CHECKED = re.compile(rb'(.*), "crc": "([0-9a-f]{8})"\}\s*', re.DOTALL)


@dataclass(frozen=True, slots=True)
class DonefileEvent:
    """One line. `number` is its place among all lines of the file, from 1."""

    number: int
    event: Literal["publish", "rollback"]
    version: int
    kind: Literal["base", "delta"]
    parent: int
    base: int
    manifest_sha256: str
    time: float

    def line(self) -> bytes:
        text = json.dumps({k: v for k, v in asdict(self).items() if k != "number"}).encode()[:-1]
        return text + b', "crc": "%08x"}\n' % _native.crc32c(text)


@dataclass(frozen=True, slots=True)
class DamagedLine:
    number: int
    why: str


@dataclass(frozen=True, slots=True)
class EventLog:
    """The events of a donefile, and the lines that cannot be read."""

    events: tuple[DonefileEvent, ...]
    damaged: tuple[DamagedLine, ...]
    is_unfinished: bool  # there are bytes after the last newline


def parse_donefile(data: bytes) -> EventLog:
    """All complete, well-formed events, in order."""
    *lines, rest = data.split(b"\n")
    events, damaged = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.endswith(UNFINISHED):
            continue
        found = _parse(number, line)
        if isinstance(found, DonefileEvent):
            events.append(found)
        else:
            damaged.append(DamagedLine(number, found))
    return EventLog(tuple(events), tuple(damaged), bool(rest.strip()))


def last_in_effect(events: Sequence[DonefileEvent]) -> DonefileEvent:
    """The event that says what to serve. A publish after one with a higher number is late and has no effect: only a
    rollback goes back. REQUIRES: events is not empty."""
    last = events[0]
    for event in events[1:]:
        if "rollback" in (event.event, last.event) or event.version >= last.version:
            last = event
    return last


def _parse(number: int, line: bytes) -> DonefileEvent | str:
    """The event, or what is wrong with the line. Lines of older formats have no checksum."""
    checked = _CHECKED.fullmatch(line)
    if checked is not None and _native.crc32c(checked[1]) != int(checked[2], 16):
        return "does not match its checksum"
    try:
        found: Any = json.loads(line)
        event, kind = found["event"], found["kind"]
        if event not in ("publish", "rollback") or kind not in ("base", "delta"):
            return "an event that this ElasticCTR does not know"
        numbers = [found[key] for key in ("version", "parent", "base")]
        if not all(type(n) is int and n >= 0 for n in numbers) or not isinstance(found["manifest_sha256"], str):
            return "values that no event has"
        return DonefileEvent(number, event, *_ordered(found, kind), found["manifest_sha256"], float(found["time"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return "not an event in JSON"


def _ordered(found: dict[str, Any], kind: Literal["base", "delta"]) -> tuple[int, Any, int, int]:
    return found["version"], kind, found["parent"], found["base"]
