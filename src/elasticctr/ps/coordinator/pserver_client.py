"""The coordinator's side of a pserver: control and group frames (docs/formats/ps-wire.md), one connection per call.

Small and slow on purpose: no row passes here. Every call has a deadline.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticctr.config.tls import TlsSettings, called
from elasticctr.errors import DataError, DeadlineExceeded, Unavailable, class_of_exit
from elasticctr.net.tls import client_tls

_HEADER = struct.Struct("<4sIQQQIBBH")
_MAGIC = bytes((0xEC, 0x57, 0x43, 0x01))
_MAX_BODY = 256 << 20
HELLO, ATTACH, GROUP, CONTROL = 1, 16, 20, 21


@dataclass(frozen=True, slots=True)
class ControlClient:
    """The caller, the same for all pservers of a job."""

    job: int  # number of the job's identity
    incarnation: int
    attach: str  # JSON
    token: str | None = None
    tls: TlsSettings | None = None

    def control(self, address: str, order: Mapping[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
        """Sends an order and returns the answer."""
        answer = self._call(address, CONTROL, json.dumps(order).encode(), timeout_s)
        try:
            value = json.loads(answer or b"{}")
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise DataError(f"{address}: a pserver's answer to {order.get('op')!r} is not a JSON object")
        return value

    def set_group(self, address: str, members: Sequence[int], timeout_s: float = 5.0) -> None:
        body = struct.pack(f"<II{len(members)}Q", len(members), 0, *members)
        self._call(address, GROUP, body, timeout_s)

    def _call(self, address: str, opcode: int, body: bytes, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        try:
            with _connect(address, deadline, called(self.tls)) as connection:
                if self.token:
                    self._ask(connection, address, HELLO, self.token.encode(), deadline)
                self._ask(connection, address, ATTACH, self.attach.encode(), deadline)
                return self._ask(connection, address, opcode, body, deadline)
        except TimeoutError:
            raise DeadlineExceeded(f"pserver {address}: no answer within {timeout_s:g} s") from None
        except ssl.SSLError as e:
            raise Unavailable(
                f"pserver {address}: TLS failed: {e.reason or e}; its certificate must be of cluster.tls.ca and name "
                "that host, ours of its client_ca"
            ) from None
        except OSError as e:
            raise Unavailable(f"pserver {address}: not reachable: {e.strerror or e}") from None

    def _ask(self, connection: socket.socket, address: str, opcode: int, body: bytes, deadline: float) -> bytes:
        header = _HEADER.pack(_MAGIC, len(body), 1, self.incarnation, self.job, 0, opcode, 0, 0)
        _limit(connection, deadline)
        connection.sendall(header + body)
        magic, size, _, _, _, _, _, status, _ = _HEADER.unpack(_receive(connection, _HEADER.size, deadline))
        if magic != _MAGIC or size > _MAX_BODY:
            raise DataError(f"{address}: does not answer like a pserver; is it the right address?")
        answer = _receive(connection, size, deadline)
        if status:
            raise class_of_exit(status)(f"pserver {address}: {answer.decode(errors='replace')}")
        return answer


def _connect(address: str, deadline: float, tls: TlsSettings | None) -> socket.socket:
    left = max(min(deadline - time.monotonic(), 5.0), 0.01)
    if address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(left)
            connection.connect(address.removeprefix("unix:"))
        except BaseException:
            connection.close()
            raise
        return connection
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise DataError(f"{address!r} is not the address of a pserver: host:port or unix:/path")
    host = host.strip("[]")
    plain = socket.create_connection((host, int(port)), timeout=left)
    if tls is None:
        return plain
    try:
        own = client_tls(tls)
        own.renew()
        return own.context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def _limit(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        _limit(connection, deadline)
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionResetError("closed the connection")
        data += part
    return bytes(data)
