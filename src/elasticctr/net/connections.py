"""Connections of a control server: each must send a request soon, or it is closed to make room for others.

A silent connection costs its sender, not other clients: it is closed after HEAD_S, or sooner if room is needed.
Only requests in progress count as work (gate.py).
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0  # from the connection, or a request's first byte, to the end of its head
KEEP_ALIVE_S = 30
MAX_CONNECTIONS = 4096
MAX_PER_ADDRESS = 512  # loopback aside
_SPARE_FILES = 256


class Connections:
    """The connections of one server. Used by its event loop only."""

    def __init__(self, most: int | None = None, per_address: int = MAX_PER_ADDRESS) -> None:
        self._most = most or _most_connections()
        self._per_address = per_address
        self._by_address: dict[str, int] = {}
        # In the order in which they fell silent.
        self._strangers: dict[GuardedProtocol, None] = {}  # no request yet
        self._idle: dict[GuardedProtocol, None] = {}
        self._count = 0

    def admit(self, one: GuardedProtocol) -> bool:
        """False if there is no room for it."""
        held = self._by_address.get(one.address, 0)
        self._by_address[one.address] = held + 1
        self._count += 1
        self._strangers[one] = None
        if held >= self._per_address and not _is_loopback(one.address):
            return False
        if self._count <= self._most:
            return True
        oldest = next(iter(self._strangers), one)
        if oldest is one:
            oldest = next(iter(self._idle), one)
        oldest.abandon()
        return oldest is not one

    def note(self, one: GuardedProtocol, *, is_asking: bool) -> None:
        """Notes that a request has begun or an answer is complete."""
        self._strangers.pop(one, None)
        if is_asking:
            self._idle.pop(one, None)
        else:
            self._idle[one] = None

    def forget(self, one: GuardedProtocol) -> None:
        self._strangers.pop(one, None)
        self._idle.pop(one, None)
        self._count -= 1
        left = self._by_address.pop(one.address, 1) - 1
        if left > 0:
            self._by_address[one.address] = left


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol with a deadline for heads. `connections` is set by `guard`."""

    guarded_by: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._head_timer: asyncio.TimerHandle | None = None
        if self.guarded_by.admit(self):
            self._start_head_timer()
        else:
            self.abandon()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self.guarded_by.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_head_timer()
            self.guarded_by.note(self, is_asking=True)
        if self.cycle is None or self.cycle.response_complete:
            self._start_head_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.guarded_by.note(self, is_asking=False)

    def abandon(self) -> None:
        self.transport.abort()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self.abandon)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def guard(connections: Connections) -> type[GuardedProtocol]:
    """A protocol class whose connections count as `connections`."""
    return type("ServerProtocol", (GuardedProtocol,), {"guarded_by": connections})


class ControlLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with the deadline of a head for TLS handshakes, too."""

    async def create_server(self, *arguments: Any, **named: Any) -> asyncio.Server:
        if named.get("ssl") is not None:
            named.setdefault("ssl_handshake_timeout", HEAD_S)
        return await super().create_server(*arguments, **named)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _most_connections() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files < 0 else max(64, min(MAX_CONNECTIONS, files - _SPARE_FILES))
