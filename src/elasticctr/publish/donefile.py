"""The donefile: an append-only log of JSON lines that announces versions and rollbacks.

A line without its newline is not there yet. Lines that are blank, torn or not ours are passed over: whoever writes next
goes on after them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

DONEFILE = "donefile"


@dataclass(frozen=True, slots=True)
class Event:
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
        return json.dumps({k: v for k, v in asdict(self).items() if k != "number"}).encode() + b"\n"


def parse_donefile(data: bytes) -> list[Event]:
    """All complete, well-formed events, in order."""
    lines = data.split(b"\n")[:-1]  # what follows the last newline is not finished
    events = (_parse(number, line) for number, line in enumerate(lines, start=1))
    return [event for event in events if event is not None]


def last_in_effect(events: Sequence[Event]) -> Event:
    """The event that says what to serve. A publish that comes after one of a higher number is late and turns nobody
    back: only a rollback does. REQUIRES: events is not empty."""
    last = events[0]
    for event in events[1:]:
        if "rollback" in (event.event, last.event) or event.version >= last.version:
            last = event
    return last


def _parse(number: int, line: bytes) -> Event | None:
    try:
        found: Any = json.loads(line)
        event, kind = found["event"], found["kind"]
        if event not in ("publish", "rollback") or kind not in ("base", "delta"):
            return None
        numbers = [found[key] for key in ("version", "parent", "base")]
        if not all(type(n) is int and n >= 0 for n in numbers) or not isinstance(found["manifest_sha256"], str):
            return None
        return Event(number, event, *_ordered(found, kind), found["manifest_sha256"], float(found["time"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _ordered(found: dict[str, Any], kind: Literal["base", "delta"]) -> tuple[int, Any, int, int]:
    return found["version"], kind, found["parent"], found["base"]
