"""One publisher per model at a time: `<model>/publisher.lock`, taken for as long as it is renewed.

A lock whose time is up, or whose process on this machine is dead, is broken. A publisher that was taken for dead finds
out when it renews, which it does before the manifest and before the donefile line: it stops; nothing it wrote counts.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from types import TracebackType
from typing import Any

from elasticctr.data.sources import Store
from elasticctr.errors import FailedPrecondition, NotFound, Unavailable

LOCK = "publisher.lock"
TTL_S = 600.0


class Lease:
    def __init__(self, store: Store, model: str, ttl_s: float = TTL_S) -> None:
        self._store = store
        self._model = model
        self._name = f"{model}/{LOCK}"
        self._ttl_s = ttl_s
        self._token = secrets.token_hex(8)
        self._renewed_s = 0.0

    def __enter__(self) -> Lease:
        for _ in range(3):
            if self._store.write_new(self._name, self._text()):
                self._renewed_s = time.monotonic()
                return self
            held = self._read()
            if held is not None and not _is_stale(held):
                raise Unavailable(
                    f"{self._store.url}/{self._model}: process {held.get('pid')} on {held.get('host')} is publishing; "
                    "one publisher per model. Try again when it is done",
                    retry_after_s=max(1.0, float(held["expires"]) - time.time()),
                )
            if held == self._read():
                self._store.delete(self._name)
        raise Unavailable(f"{self._store.url}/{self._name}: others take it first; try again", retry_after_s=1.0)

    def renew(self) -> None:
        """FailedPrecondition if the lock was lost."""
        held = self._read()
        if held is None or held.get("owner") != self._token:
            raise FailedPrecondition(
                f"{self._store.url}/{self._model}: another publisher took over while this one was slow; "
                "nothing was announced. Publish again"
            )
        if time.monotonic() - self._renewed_s > self._ttl_s / 4:
            self._store.write_bytes(self._name, self._text())
            self._renewed_s = time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held = self._read()
        if held is not None and held.get("owner") == self._token:
            self._store.delete(self._name)

    def _text(self) -> bytes:
        held = {"owner": self._token, "host": socket.gethostname(), "pid": os.getpid()}
        return json.dumps(held | {"expires": time.time() + self._ttl_s}).encode()

    def _read(self) -> dict[str, Any] | None:
        """What the lock says; {} if it cannot be read, None if there is none."""
        try:
            held = json.loads(self._store.read_bytes(self._name))
        except NotFound:
            return None
        except ValueError:
            return {}
        return held if isinstance(held, dict) else {}


def _is_stale(held: dict[str, Any]) -> bool:
    expires, pid = held.get("expires"), held.get("pid")
    if not isinstance(expires, (int, float)) or not isinstance(pid, int) or time.time() > expires:
        return True
    if held.get("host") != socket.gethostname():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
