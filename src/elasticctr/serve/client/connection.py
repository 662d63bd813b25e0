"""A non-blocking connection to an endpoint: connect, TLS, send and receive, each as far as possible.

`advance` is called when `poll` reports the socket ready for `events`, so one thread can wait for several connections
at once.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import time
from collections.abc import Callable

from elasticctr.errors import ConfigError
from elasticctr.serve.client.http1 import HttpResponse, ResponseReader, TransportError
from elasticctr.serve.client.settings import Address, PredictClientSettings

READ_BYTES = 256 << 10


def make_tls(settings: PredictClientSettings) -> ssl.SSLContext:
    """Raises ConfigError."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as e:
        raise ConfigError(f"{settings.ca_file}: not usable as the certificates of an authority: {e}") from None
    if settings.cert_file is not None:
        try:
            context.load_cert_chain(settings.cert_file, settings.key_file, password=lambda: "")
        except (OSError, ssl.SSLError, ValueError) as e:
            names = f"{settings.cert_file}, {settings.key_file}"
            raise ConfigError(f"{names}: not a usable certificate and key: {e}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


class Connection:
    """One request at a time."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, connect_s: float) -> None:
        """Begins to connect. Raises TransportError."""
        self.is_reused = False
        self.events = select.POLLOUT
        self.connect_by_s = time.monotonic() + connect_s
        self.pid = os.getpid()
        self._reader = ResponseReader()
        self._out = memoryview(b"")
        self._connecting = self._handshaking = False
        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except OSError as e:
            raise TransportError(f"unknown host name: {e}") from None
        family, kind, protocol, _, target = found[0]
        self.socket = socket.socket(family, kind, protocol)
        try:
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            status = self.socket.connect_ex(target)
            if status not in (0, errno.EINPROGRESS):
                raise TransportError(_explain(status))
            self._connecting = status != 0
            if tls is not None:
                self._tls, self._name = tls, address.host
                self._handshaking = True
        except OSError as e:
            self.socket.close()
            raise TransportError(_explain(e.errno or 0)) from None
        except TransportError:
            self.socket.close()
            raise

    @property
    def is_connected(self) -> bool:
        return not (self._connecting or self._handshaking)

    def send(self, data: bytes) -> None:
        """Begins a request. Raises TransportError."""
        self._reader = ResponseReader()
        self._out = memoryview(data)
        self.events = select.POLLOUT
        if self.is_connected:
            self._go(self._write)

    def advance(self) -> HttpResponse | None:
        """Sends or receives as much as possible. Raises TransportError."""
        return self._go(self._step)

    def _go(self, step: Callable[[], HttpResponse | None]) -> HttpResponse | None:
        try:
            return step()
        except (BlockingIOError, ssl.SSLWantReadError):
            self.events = select.POLLOUT if self._connecting or (self._out and self.is_connected) else select.POLLIN
            return None
        except ssl.SSLWantWriteError:
            self.events = select.POLLOUT
            return None
        except ssl.SSLError as e:
            raise TransportError(f"TLS failed: {e.reason or e}") from None
        except OSError as e:
            raise TransportError(_explain(e.errno or 0)) from None

    def _step(self) -> HttpResponse | None:
        if self._connecting:
            status = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if status:
                raise TransportError(_explain(status))
            self._connecting = False
        if self._handshaking:
            self._shake()
        self._write()
        while True:
            data = self.socket.recv(READ_BYTES)
            response = self._reader.feed(data) if data else self._reader.feed_end()
            if response is not None:
                return response

    def _write(self) -> None:
        while self._out:
            self._out = self._out[self.socket.send(self._out) :]
        self.events = select.POLLIN

    def _shake(self) -> None:
        if not isinstance(self.socket, ssl.SSLSocket):
            self.socket = self._tls.wrap_socket(self.socket, server_hostname=self._name, do_handshake_on_connect=False)
        self.socket.do_handshake()
        self._handshaking = False

    @property
    def was_stale(self) -> bool:
        """Whether the failure only means that the server had closed an idle connection."""
        return self.is_reused and self._reader.is_empty

    def close(self) -> None:
        self.socket.close()


def _explain(status: int) -> str:
    return {
        errno.ECONNREFUSED: "refused the connection",
        errno.ECONNRESET: "reset the connection",
        errno.EPIPE: "closed the connection",
    }.get(status, os.strerror(status))
