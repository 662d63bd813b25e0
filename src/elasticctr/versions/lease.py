"""One publisher per model at a time: `<model>/publisher.lock`, held as long as it is renewed.

An expired lock may be taken over; an unexpired one only if its process is known to be dead. Host name and process
number do not prove that, since containers share both. A publisher renews while it writes, before the manifest and
before the donefile line. If it lost the lock it stops, and nothing it wrote counts.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from elasticctr.errors import FailedPrecondition, NotFound, Unavailable
from elasticctr.storage import Store

LOCK = "publisher.lock"
TTL_S = 600.0
_TRIES = 5


class PublisherLease:
    def __init__(self, store: Store, model: str, ttl_s: float = TTL_S) -> None:
        self._store = store
        self._model = model
        self._name = f"{model}/{LOCK}"
        self._ttl_s = ttl_s
        self._token = secrets.token_hex(8)
        self._renewed_s = 0.0

    def __enter__(self) -> PublisherLease:
        for _ in range(_TRIES):
            now_s = time.monotonic()
            if self._store.write_new(self._name, self._text()) or self._take_over():
                self._renewed_s = now_s
                return self
        raise Unavailable(
            f"{self._store.url}/{self._name}: another publisher took it first; try again", retry_after_s=1.0
        )

    def keep_alive(self) -> None:
        """Renews once a quarter of the lease is over. Cheap; call it in long loops."""
        if time.monotonic() - self._renewed_s > self._ttl_s / 4:
            self.renew()

    def renew(self) -> None:
        """Raises FailedPrecondition if the lock was lost."""
        raw = self._read()
        is_ours = raw is not None and _parse(raw).get("owner") == self._token
        now_s = time.monotonic()
        if is_ours and now_s - self._renewed_s > self._ttl_s / 4:
            is_ours = self._store.replace(self._name, self._text(), raw or b"")
            self._renewed_s = now_s
        if not is_ours:
            raise FailedPrecondition(
                f"{self._store.url}/{self._model}: another publisher took over while this one was slow; "
                "nothing was announced. Publish again"
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raw = self._read()
        if raw is None or _parse(raw).get("owner") != self._token:
            return
        # After expiry another process may be taking the lock over at this moment.
        if time.monotonic() - self._renewed_s < self._ttl_s or self._store.replace(self._name, self._text(-1), raw):
            self._store.delete(self._name)

    def _take_over(self) -> bool:
        """Whether an existing lock is ours, or could be taken over."""
        raw = self._read()
        if raw is None:
            return False
        held = _parse(raw)
        if held.get("owner") == self._token:
            return True  # our own request, sent twice by the client
        if describe_holder(self._store, self._model, raw) is None:
            return self._store.replace(self._name, self._text(), raw)
        expires = held.get("expires")
        raise Unavailable(
            f"{self._store.url}/{self._model}: {describe_holder(self._store, self._model, raw)}; one publisher per "
            "model. Try again when it is done",
            retry_after_s=max(1.0, expires - time.time()) if isinstance(expires, (int, float)) else TTL_S,
        )

    def _text(self, ttl_s: float | None = None) -> bytes:
        held = {"owner": self._token, "host": socket.gethostname(), "pid": os.getpid(), **_place(os.getpid())}
        return json.dumps(held | {"expires": time.time() + (self._ttl_s if ttl_s is None else ttl_s)}).encode()

    def _read(self) -> bytes | None:
        return read_lock(self._store, self._model)


def read_lock(store: Store, model: str) -> bytes | None:
    try:
        return store.read_bytes(f"{model}/{LOCK}")
    except NotFound:
        return None


def describe_holder(store: Store, model: str, raw: bytes) -> str | None:
    """A description of the holder of a lock with this text; None if nobody holds it any more."""
    held = _parse(raw)
    expires, pid = held.get("expires"), held.get("pid")
    if not isinstance(expires, (int, float)) or not isinstance(pid, int):
        # Some stores show a file before its contents.
        try:
            written_s = store.modified(f"{model}/{LOCK}")
        except NotFound:
            return None
        is_old = written_s is None or time.time() - written_s > TTL_S
        return None if is_old else f"{LOCK} cannot be read and was written less than {TTL_S:.0f} s ago"
    if time.time() > expires or _is_dead(held, pid):
        return None
    return f"process {pid} on {held.get('host')} is publishing"


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        held = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}


def _place(pid: int) -> dict[str, Any]:
    """What makes a process number unique: the machine's boot, the PID namespace and the process's start."""
    try:
        return {
            "boot": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
            # The name, in parentheses, may hold anything; the start is the 20th of the plain fields after it.
            "started": int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19]),
        }
    except (OSError, ValueError, IndexError):
        return {}


def _is_dead(held: dict[str, Any], pid: int) -> bool:
    """Whether the process is dead. False for one that could not be seen from here; its lock must expire."""
    here = _place(os.getpid())
    if not here or any(held.get(key) != here[key] for key in ("boot", "pid_namespace")):
        return False
    if not isinstance(held.get("started"), int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    there = _place(pid)
    return bool(there) and there["started"] != held["started"]
