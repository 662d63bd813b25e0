"""Reads request logs: files in order, whole lines from a position on, lines as typed requests.

docs/formats/request-log.md is the specification. Files still being written are read up to their last whole line.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from elasticctr.errors import DataError, FailedPrecondition, NotFound
from elasticctr.storage.filesystem import explain

FORMAT = 1
_PREFIX, _COMPLETE, _OPEN = "requests-", ".jsonl", ".jsonl.open"
_READ_BYTES = 1 << 20
_LARGEST = (1 << 64) - 1
_MAX_LINE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class LoggedSample:
    slots: dict[str, list[int]]  # its own, beside the shared ones
    dense: dict[str, list[float]]
    scores: list[float]


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    time: float
    id: str
    model: str
    version: int
    variant: str
    protocol: str
    content_type: str
    binary_header: int
    body: bytes | None  # None: it exceeded the log's limit
    shared: dict[str, list[int]]
    samples: list[LoggedSample]
    is_partial: bool  # rows were missing because the Cube failed, so its scores cannot be reproduced

    def values_of(self, sample: int) -> dict[str, list[int]]:
        """All feasigns of one sample by slot."""
        return self.shared | self.samples[sample].slots


def list_logs(locations: Sequence[str | Path]) -> list[Path]:
    """The log files in directories, and files given by name, in the order in which they were started."""
    found: list[Path] = []
    for location in map(Path, locations):
        try:
            if location.is_dir():
                found += [path for path in location.iterdir() if _is_log(path.name)]
            elif location.exists():
                found.append(location)
            else:
                raise NotFound(f"{location}: no such request log; a server writes one with --request-log DIR")
        except OSError as e:
            raise explain(e, str(location)) from None
    return sorted(found, key=lambda path: (log_name(path).rpartition("/")[2], str(path)))


def log_name(path: Path) -> str:
    """The file's name, the same before and after it is complete."""
    return str(path).removesuffix(".open")


def open_log(path: Path) -> Path:
    """Opens a file that may have been completed, and so renamed, since it was listed."""
    complete = Path(log_name(path))
    return complete if complete != path and not path.exists() and complete.exists() else path


def read_lines(path: Path, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Whole lines from `offset` on, without their ends, and the offset after each."""
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) < offset:
                raise FailedPrecondition(
                    f"{path}: shorter than when it was last read; request logs must not be truncated"
                )
            file.seek(offset)
            rest = b""
            while data := file.read(_READ_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    offset += len(line) + 1
                    yield offset, line
                if len(rest) > _MAX_LINE_BYTES:
                    raise DataError(f"a line of more than {_MAX_LINE_BYTES} bytes; is this a request log?", path)
    except OSError as e:
        raise explain(e, str(path)) from None


def parse_line(line: bytes, path: Path | str, number: int | None = None) -> LoggedRequest:
    """Raises DataError if it is not a line of a request log."""
    try:
        entry = json.loads(line)
        if entry["format"] != FORMAT:
            raise DataError(
                f"a request log of format {entry['format']!r}; this ElasticCTR reads {FORMAT}", path, number
            )
        coverage = entry["coverage"]
        return LoggedRequest(
            float(entry["time"]),
            _text(entry, "id"),
            str(entry["model"]),
            int(entry["version"]),
            str(entry["variant"]),
            str(entry["protocol"]),
            _text(entry, "content_type") if "content_type" in entry else "",
            int(entry.get("binary_header", 0)),
            _body(entry),
            _bags(entry["shared"]),
            [_sample(sample) for sample in entry["samples"]],
            bool(coverage.get("late") or coverage.get("dead_shards")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as e:
        raise DataError(f"not a line of a request log: {type(e).__name__}: {e}", path, number) from None


def _sample(sample: dict[str, Any]) -> LoggedSample:
    dense = {str(name): [float(v) for v in values] for name, values in sample.get("dense", {}).items()}
    scores = [float("nan") if v is None else float(v) for v in sample["scores"]]
    return LoggedSample(_bags(sample["slots"]), dense, scores)


def _bags(slots: dict[str, list[int]]) -> dict[str, list[int]]:
    values = list(chain.from_iterable(slots.values()))
    if values and (set(map(type, values)) != {int} or min(values) < 0 or max(values) > _LARGEST):
        raise ValueError("slots must hold feasigns")
    return slots


def _text(entry: dict[str, Any], name: str) -> str:
    if f"{name}_base64" in entry:
        # One-to-one and printable: ids are only compared.
        return base64.b64decode(entry[f"{name}_base64"]).decode("latin-1")
    return str(entry[name])


def _body(entry: dict[str, Any]) -> bytes | None:
    if "request_base64" in entry:
        return base64.b64decode(entry["request_base64"], validate=True)
    return str(entry["request"]).encode() if "request" in entry else None


def _is_log(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith((_COMPLETE, _OPEN))
