"""The calls that roles make to the coordinator (docs/formats/coordinator-api.md), one function per call.

A call is made once and fails with Unavailable or DeadlineExceeded without an answer; `patiently` repeats it, which
every call allows. Where only the run directory is known, a coordinator that moved is found there again.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from elasticctr.config.tls import TlsSettings
from elasticctr.errors import Corruption, DataError, DeadlineExceeded, Unavailable
from elasticctr.net.client import Peer
from elasticctr.ps.addresses import find_coordinator

T = TypeVar("T")

_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class ShardAddress:
    """Where a shard is served. `address` is None while no pserver serves it."""

    shard: int
    address: str | None
    standby: str | None
    is_ready: bool


class CoordinatorClient:
    """One coordinator. Safe to use from several threads."""

    def __init__(
        self, where: str, token: str | None = None, *, timeout_s: float = 5.0, tls: TlsSettings | None = None
    ) -> None:
        """`where`: its URL, or the run directory it writes its address to."""
        self._where = where
        self._token = token or None
        self._timeout_s = timeout_s
        self._tls = tls
        self._lock = threading.Lock()
        self._peer: Peer | None = None
        self.incarnation = 0  # as last heard
        self.generation = 0
        self.era = 0

    def join(
        self,
        role: str,
        name: str,
        *,
        build: str,
        identity: str,
        host: str,
        pid: int,
        address: str | None = None,
        shard: int | None = None,
    ) -> dict[str, Any]:
        about = {"role": role, "name": name, "build": build, "identity": identity, "host": host, "pid": pid}
        return self.post("/v1/join", {**about, "address": address, "shard": shard})

    def beat(self, member: int, stats: dict[str, Any]) -> dict[str, Any]:
        return self.post("/v1/beat", {"id": member, "stats": stats})

    def pservers(self) -> list[ShardAddress]:
        answer = self.get("/v1/pservers")
        try:
            return [
                ShardAddress(int(s["shard"]), s.get("address"), s.get("standby"), bool(s["is_ready"]))
                for s in answer["shards"]
            ]
        except (KeyError, TypeError, ValueError) as e:
            raise DataError(f"the coordinator's list of pservers makes no sense: {type(e).__name__}: {e}") from None

    def lease(self, member: int, have: Sequence[str]) -> dict[str, Any]:
        return self.post("/v1/lease", {"id": member, "have": list(have)})

    def progress(self, member: int, body: dict[str, Any]) -> dict[str, Any]:
        return self.post("/v1/progress", {"id": member, **body})

    def done(self, member: int, body: dict[str, Any]) -> dict[str, Any]:
        return self.post("/v1/done", {"id": member, **body})

    def give_back(self, member: int, chunk: str, reason: str) -> dict[str, Any]:
        return self.post("/v1/give_back", {"id": member, "chunk": chunk, "reason": reason})

    def leave(self, member: int, reason: str) -> dict[str, Any]:
        return self.post("/v1/leave", {"id": member, "reason": reason})

    def report(self, member: int, what: str, detail: str) -> dict[str, Any]:
        return self.post("/v1/report", {"id": member, "what": what, "detail": detail})

    def status(self) -> dict[str, Any]:
        return self.get("/v1/status")

    def get(self, path: str) -> dict[str, Any]:
        return self._call(lambda peer: peer.get(path))

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._call(lambda peer: peer.post(path, body))

    def close(self) -> None:
        with self._lock:
            peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    def _call(self, ask: Callable[[Peer], dict[str, Any]]) -> dict[str, Any]:
        with self._lock:
            if self._peer is None:
                url = find_coordinator(self._where)
                self._peer = Peer(url, self._token, timeout_s=self._timeout_s, tls=self._tls)
            peer = self._peer
        try:
            answer = ask(peer)
        except (Unavailable, DeadlineExceeded):
            with self._lock:
                if self._peer is peer:
                    self._peer = None  # the next call looks where it is now; others may still be using this one
            raise
        with self._lock:
            self.incarnation = max(self.incarnation, _number(answer, "incarnation"))
            self.generation = max(self.generation, _number(answer, "generation"))
            self.era = max(self.era, _number(answer, "era"))
        return answer


def patiently(call: Callable[[], T], wait_s: float, is_over: Callable[[], bool] = lambda: False) -> T:
    """The result of a call that may have to be repeated for up to `wait_s`, with growing pauses, until `is_over`."""
    deadline = time.monotonic() + wait_s
    attempt = 0
    while True:
        try:
            return call()
        except (Unavailable, DeadlineExceeded) as e:
            pause = _PAUSES_S[min(attempt, len(_PAUSES_S) - 1)]
            if isinstance(e, Unavailable) and e.retry_after_s is not None:
                pause = min(max(e.retry_after_s, pause), 5.0)
            if time.monotonic() + pause > deadline or is_over():
                raise
            time.sleep(pause)
            attempt += 1


def pack_metrics(state: bytes) -> str:
    """The state of metrics as text for a report."""
    return base64.b64encode(state).decode("ascii")


def unpack_metrics(text: str) -> bytes:
    """Raises Corruption for what `pack_metrics` did not make."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as e:
        raise Corruption(f"reported metrics cannot be unpacked: {e}") from None


def _number(answer: dict[str, Any], name: str) -> int:
    value = answer.get(name, 0)
    return value if isinstance(value, int) else 0
