"""Click and impression events: JSON lines or CSV with `id`, `index` (of the candidate, default 0) and `time`."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from elasticctr.errors import DataError, FailedPrecondition
from elasticctr.storage.locations import Source

_READ_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 20
_JSON = "{"
_NAMES = ("id", "index", "time")


@dataclass(frozen=True, slots=True)
class FeedbackEvent:
    id: str
    index: int
    time: float  # unix seconds


@dataclass(slots=True)
class Reading:
    """How far a file has been read. `header` is the first line of a CSV file, `{` for JSON lines."""

    offset: int = 0
    header: str | None = None


def read_events(source: Source, reading: Reading, *, is_final: bool) -> Iterator[FeedbackEvent | DataError]:
    """Events from `reading` on, which advances; a bad line yields its error. A last line without a newline counts only
    if the file `is_final`."""
    number: int | None = 0 if reading.offset == 0 else None
    for line, size in _lines(source, reading.offset, is_final):
        reading.offset += size
        number = None if number is None else number + 1
        text = line.decode(errors="replace").strip()
        if not text:
            continue
        try:
            if reading.header is None:
                reading.header = _check_header(text)
            elif reading.header != _JSON:
                yield _from_csv(text, reading.header)
                continue
            if reading.header == _JSON:
                yield _from_json(text)
        except (ValueError, TypeError, KeyError, RecursionError) as e:
            why = f"no {e}" if isinstance(e, KeyError) else str(e)
            error = DataError(f"not an event: {why}; give id and time, and index unless it is 0", source.path, number)
            if reading.header is None:
                raise error from None
            yield error


def parse_time(value: Any) -> float:
    """Unix seconds, or ISO 8601 (UTC if it names no zone)."""
    if isinstance(value, str) and not value.replace(".", "", 1).replace("e", "", 1).replace("+", "", 1).isdigit():
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    time = float(value)
    if isinstance(value, bool) or not math.isfinite(time) or not 0 <= time < 1e11:
        raise ValueError(f"time {value!r} is not in unix seconds")
    return time


def _from_json(text: str) -> FeedbackEvent:
    entry = json.loads(text)
    if not isinstance(entry, dict):
        raise ValueError("not a JSON object")
    name, index = entry["id"], entry.get("index", 0)
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        raise ValueError(f"id {name!r} is not a string")
    return FeedbackEvent(str(name), _index(index), parse_time(entry["time"]))


def _from_csv(text: str, header: str) -> FeedbackEvent:
    names = next(csv.reader([header]))
    cells = dict(zip((name.strip() for name in names), next(csv.reader([text])), strict=True))
    return FeedbackEvent(cells["id"], _index(cells.get("index") or 0), parse_time(cells["time"].strip()))


def _index(value: Any) -> int:
    if isinstance(value, (bool, float)) or int(value) < 0:
        raise ValueError(f"index {value!r} is not a whole number from 0")
    return int(value)


def _check_header(text: str) -> str:
    if text.startswith(_JSON):
        return _JSON
    names = [name.strip() for name in next(csv.reader([text]))]
    if "id" not in names or "time" not in names:
        raise ValueError(f"a CSV file must start with column names ({', '.join(_NAMES)}), not {text[:60]!r}")
    return text


def _lines(source: Source, offset: int, is_final: bool) -> Iterator[tuple[bytes, int]]:
    """Lines and the bytes of each, with its newline."""
    buffer = memoryview(bytearray(_READ_BYTES))
    rest = b""
    with source.open() as stream:
        size = source.stamp()[0]
        if not stream.is_compressed and size is not None and size < offset:
            raise FailedPrecondition(
                f"{source.path}: shorter than when it was last read; put new events into new files"
            )
        stream.skip(offset)
        while count := stream.read_into(buffer):
            *lines, rest = (rest + bytes(buffer[:count])).split(b"\n")
            for line in lines:
                yield line, len(line) + 1
            if len(rest) > _MAX_LINE_BYTES:
                raise DataError(f"a line of more than {_MAX_LINE_BYTES} bytes; is this a file of events?", source.path)
    if rest and is_final:
        yield rest, len(rest)
