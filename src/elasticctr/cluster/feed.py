"""News of a running job: the coordinator's status, polled in the background, and new lines of its event log.

Neither blocks its reader: while the coordinator restarts there is simply no newer status.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from elasticctr.config.tls import TlsSettings
from elasticctr.errors import ElasticCTRError
from elasticctr.net.client import Peer
from elasticctr.ps.addresses import find_coordinator

Status = Mapping[str, Any]


class StatusFeed:
    """A context manager that polls `/v1/status` every `every_s` seconds in a thread of its own."""

    def __init__(
        self, where: str | Path, token: str | None, every_s: float = 0.5, tls: TlsSettings | None = None
    ) -> None:
        self._where = where
        self._token = token
        self._tls = tls
        self._every_s = every_s
        self._latest: Status = {}
        self._at_s: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)

    @property
    def latest(self) -> Status:
        """The latest status; empty until there is one."""
        return self._latest

    @property
    def age_s(self) -> float | None:
        return None if self._at_s is None else time.monotonic() - self._at_s

    def __enter__(self) -> StatusFeed:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._latest, self._at_s = ask_status(self._where, self._token, tls=self._tls), time.monotonic()
            except ElasticCTRError:
                continue  # not started yet, or restarting


def ask_status(
    where: str | Path, token: str | None, timeout_s: float = 2.0, tls: TlsSettings | None = None
) -> dict[str, Any]:
    with Peer(find_coordinator(where), token, timeout_s=timeout_s, tls=tls) as peer:
        return peer.get("/v1/status")


class EventTail:
    """The events added to a log since the last call. A log that a resume truncated is read from its new end on."""

    def __init__(self, path: Path, *, skip: bool) -> None:
        self._path = path
        self._offset = path.stat().st_size if skip and path.exists() else 0

    def read(self) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._offset:
                    self._offset = size
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        events = []
        for line in data[:whole].splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                events.append(event)
        return events


class EventNews:
    """The status of a job without a coordinator, from its event log, in the coordinator's form."""

    def __init__(self, tail: EventTail) -> None:
        self._tail = tail
        self.status: dict[str, Any] = {}

    def read(self) -> list[dict[str, Any]]:
        events = self._tail.read()
        for event in events:
            if event["event"] == "train":
                self.status = {
                    "phase": "training",
                    **{key: event[key] for key in event if key not in ("event", "time")},
                }
        return events
