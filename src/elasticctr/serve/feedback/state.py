"""The state of a join between runs. It survives a kill at any moment.

`state.json` is replaced atomically and is authoritative: how far inputs were read, which requests were written, how
long each file beside it is. Files only grow beyond the length stated there, or carry the number of a run that is not
stated there yet; opening a state truncates or removes these, and removes the outputs of uncommitted runs.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from elasticctr.errors import Corruption, FailedPrecondition, Unavailable
from elasticctr.storage.atomic import write_json
from elasticctr.storage.filesystem import explain

FORMAT = 1
_STATE, _INTENT, _LOCK = "state.json", "intent.json", "lock"
_BUFFER_BYTES = 32 << 20


@dataclass(slots=True)
class JoinCounts:
    """What became of all input, over all runs of a state."""

    requests: int = 0  # read from logs
    samples: int = 0  # written
    clicked: int = 0  # samples with label 1
    clicks: int = 0  # events read
    impressions: int = 0  # events read
    duplicate_requests: int = 0
    late_requests: int = 0  # read after their hour was written
    other_models: int = 0
    bad_requests: int = 0
    not_shown: int = 0  # candidates without an impression
    duplicate_clicks: int = 0
    late_clicks: int = 0  # after the window, or after their request was written
    early_clicks: int = 0  # before their request, by more than clocks may differ
    unknown_clicks: int = 0  # without a request of their id
    bad_index: int = 0  # index of a candidate that the request lacks
    bad_events: int = 0  # lines that cannot be read


@dataclass(slots=True)
class Stored:
    """The content of state.json."""

    options: dict[str, Any]
    generation: int = 0  # committed runs
    closed: float = 0.0  # requests before this time were written
    files: dict[str, list[Any]] = field(default_factory=dict)  # input → [offset, CSV header]
    lengths: dict[str, int] = field(default_factory=dict)  # files of the state directory
    hours: list[str] = field(default_factory=list)  # with samples but no donefile yet
    counts: dict[str, int] = field(default_factory=dict)
    format: int = FORMAT


class JoinState:
    """The state directory, locked. Outputs of uncommitted runs are removed from `out`."""

    def __init__(self, directory: Path, out: Path, options: dict[str, Any]) -> None:
        self.directory = directory
        self._out = out
        self._buffers: dict[str, list[bytes]] = defaultdict(list)
        self._buffered = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = (directory / _LOCK).open("wb")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Unavailable(f"{directory}: another join is using this state; wait until it ends") from None
            self.stored = self._load(options)
            self._recover()
        except OSError as e:
            raise explain(e, str(directory)) from None

    def _load(self, options: dict[str, Any]) -> Stored:
        path = self.directory / _STATE
        if not path.exists():
            return Stored(options)
        try:
            stored = Stored(**json.loads(path.read_bytes()))
            if stored.format != FORMAT:
                raise ValueError(f"format {stored.format}")
        except (ValueError, TypeError) as e:
            raise Corruption(f"{path}: not the state of a join: {e}; start again with an empty --state") from None
        changed = [name for name, value in options.items() if stored.options.get(name) != value]
        if changed:
            was = ", ".join(f"{name} {stored.options.get(name)!r}" for name in changed)
            raise FailedPrecondition(
                f"{self.directory}: its runs used {was}; keep that, or start again with another --state and --out"
            )
        return stored

    def _recover(self) -> None:
        intent = self.directory / _INTENT
        if intent.exists():
            planned = json.loads(intent.read_bytes())
            if planned["generation"] > self.stored.generation:
                for name in planned["files"]:
                    (self._out / name).unlink(missing_ok=True)
        for path in self.directory.iterdir():
            length = self.stored.lengths.get(path.name)
            if length is not None:
                if path.stat().st_size < length:
                    raise Corruption(f"{path}: shorter than when it was written; start again with an empty --state")
                os.truncate(path, length)
            elif path.name not in (_STATE, _LOCK):
                path.unlink()
        if missing := [name for name in self.stored.lengths if not (self.directory / name).exists()]:
            raise Corruption(f"{self.directory}: {missing[0]} is missing; start again with an empty --state")

    def append(self, name: str, line: bytes) -> None:
        """Adds a line to a file of the state. It counts once committed."""
        self._buffers[name].append(line)
        self._buffered += len(line) + 100
        if self._buffered > _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        for name, lines in self._buffers.items():
            data = b"".join(lines)
            try:
                with (self.directory / name).open("ab") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as e:
                raise explain(e, str(self.directory / name)) from None
            self.stored.lengths[name] = self.stored.lengths.get(name, 0) + len(data)
        self._buffers.clear()
        self._buffered = 0

    def lines(self, name: str) -> Iterator[bytes]:
        """Lines of a file of the state; none if there is no such file. REQUIRES: flushed."""
        if name in self.stored.lengths:
            with (self.directory / name).open("rb") as file:
                yield from file

    def forget(self, name: str) -> None:
        """Removes the file with the next commit."""
        self.stored.lengths.pop(name, None)

    def intend(self, files: list[str]) -> None:
        """Records the outputs that this run will make, relative to `out`."""
        self._write(_INTENT, {"generation": self.stored.generation + 1, "files": files})

    def commit(self) -> None:
        """Makes this run permanent."""
        self.flush()
        self.stored.generation += 1
        self._write(_STATE, asdict(self.stored))
        for path in self.directory.iterdir():
            if path.name not in self.stored.lengths and path.name not in (_STATE, _LOCK, _INTENT):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> JoinState:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _write(self, name: str, value: dict[str, Any]) -> None:
        write_json(self.directory / name, value)
