"""A cube server that speaks docs/formats/wire.md and misbehaves on demand. Rows name version and feasign, so that a row
from the wrong place shows."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

HEADER = struct.Struct("<4sIQQQIBBH")
MAGIC = b"\xec\x57\x43\x01"
HELLO, PING, LOOKUP, DESCRIBE = 1, 2, 3, 4
DIM = 4


def expected_rows(version: int, feasigns: NDArray[np.uint64]) -> NDArray[np.float32]:
    low = (feasigns % np.uint64(1 << 20)).astype(np.float32)
    rows = np.stack(
        [np.full(feasigns.size, version, np.float32), low, -low, np.full(feasigns.size, 0.5, np.float32)], 1
    )
    rows[~expected_found(feasigns)] = 0
    return rows


def expected_found(feasigns: NDArray[np.uint64]) -> NDArray[np.bool_]:
    return np.asarray(feasigns % np.uint64(5) != 0)


@dataclass
class Request:
    id: int
    version: int
    table: int
    opcode: int
    body: bytes


class FakeServer:
    """`behave` is read for every lookup: ok, hang, close, cut, garbage, oversized, wrong_id, wrong_version, bad_count,
    wide_rows, overloaded, gone, no_table, wrong_shard, internal, trailing, or `slow:SECONDS`."""

    def __init__(
        self,
        shard: int = 0,
        shards: int = 1,
        *,
        versions: tuple[int, ...] = (1,),
        active: int = 1,
        token: str = "",
        sharding: str = "buckets",
        port: int = 0,
    ) -> None:
        self.shard, self.shards, self.sharding, self.token = shard, shards, sharding, token
        self.versions, self.active = set(versions), active
        self.model, self.tables, self.dim = "ctr", ["embedding", "linear"], DIM
        self.behave = "ok"
        self.protocol, self.max_keys, self.report_json = 1, 1_000_000, b""
        self.seen: Counter[str] = Counter()
        self.keys_seen = 0
        self.connections = 0
        self.largest = 0
        self._sockets: set[socket.socket] = set()
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=256)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._closed.set()
        self._listener.close()
        for connection in list(self._sockets):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self._closed.is_set():
                connection.close()
                return
            self.connections += 1
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        greeted = not self.token
        try:
            while True:
                head = _read(connection, HEADER.size)
                magic, size, id_, version, table, _, opcode, _, _ = HEADER.unpack(head)
                assert magic == MAGIC
                request = Request(id_, version, table, opcode, _read(connection, size))
                if opcode == HELLO:
                    if self.token and request.body.decode() != self.token:
                        connection.sendall(_error(request, 16, 0, "wrong token"))
                        return
                    greeted = True
                    self._send(connection, request, self._hello())
                elif not greeted:
                    connection.sendall(_error(request, 16, 0, "say hello first"))
                    return
                elif opcode == PING:
                    self._send(connection, request, request.body)
                elif opcode == DESCRIBE:
                    self.seen["describe"] += 1
                    if self.behave == "hang":
                        self._closed.wait()
                        return
                    self._send(connection, request, self.report_json or json.dumps(self.report()).encode())
                elif not self._lookup(connection, request):
                    return
        except (OSError, EOFError):
            pass
        finally:
            self._sockets.discard(connection)
            connection.close()

    def _hello(self) -> bytes:
        limits = {"server": "cube", "protocol": self.protocol, "max_body": 16 << 20, "max_keys": self.max_keys}
        return json.dumps(limits).encode()

    def _send(self, connection: socket.socket, request: Request, body: bytes) -> None:
        connection.sendall(_frame(request, 0, body))

    def report(self) -> dict[str, Any]:
        shape = {"row_bytes": 4 * self.dim, "encoding": "fp32", "dim": self.dim, "sharding": self.sharding}
        tables = [{"name": t, "rows": 1, "shard": self.shard, "shards": self.shards, **shape} for t in self.tables]
        ready = [{"version": v, "parent": 0, "state": "ready", "tables": tables} for v in sorted(self.versions)]
        return {"ready": True, "models": [{"name": self.model, "active": self.active, "versions": ready}]}

    def _lookup(self, connection: socket.socket, request: Request) -> bool:
        behave = self.behave
        self.seen[behave] += 1
        keys = np.frombuffer(request.body, np.uint64)
        self.keys_seen += keys.size
        self.largest = max(self.largest, keys.size)
        if behave.startswith("slow:"):
            time.sleep(float(behave.removeprefix("slow:")))
        elif behave == "hang":
            self._closed.wait()
            return False
        elif behave in ERRORS:
            connection.sendall(_error(request, *ERRORS[behave]))
            return True
        version = request.version or self.active
        if request.table not in {xxh64_intdigest(f"{self.model}/{t}".encode()) for t in self.tables}:
            connection.sendall(_error(request, 12, 1, "no such table"))
            return True
        if version not in self.versions:
            connection.sendall(_error(request, 12, 2, f"version {version} is not here"))
            return True
        rows, found = expected_rows(version, keys), expected_found(keys)
        bits = np.packbits(found, bitorder="little").tobytes()
        body = struct.pack("<IIQ", keys.size, 4 * self.dim, self.active)
        body += bits.ljust((keys.size + 63) // 64 * 8, b"\0") + rows.tobytes()
        answer = bytearray(_frame(request, version, body))
        if behave == "cut":
            connection.sendall(answer[: len(answer) // 2])
            return False
        if behave == "close":
            return False
        _damage(answer, behave)
        connection.sendall(bytes(answer))
        return True


ERRORS = {
    "overloaded": (17, 4, "the queue is full"),
    "gone": (12, 2, "version gone"),
    "no_table": (12, 1, "no such table here"),
    "wrong_shard": (15, 3, "a feasign of another shard"),
    "internal": (19, 0, "a bug"),
    "nothing_active": (17, 5, "nothing is active"),
    "malformed": (11, 7, "malformed body"),
}
RETRY_AFTER_MS = 30


def _damage(answer: bytearray, behave: str) -> None:
    if behave == "garbage":
        answer[:] = bytes(range(256)) * 4
    elif behave == "oversized":
        answer[4:8] = b"\xff\xff\xff\xff"
    elif behave == "wrong_id":
        answer[8] ^= 1
    elif behave == "wrong_version":
        answer[16] += 1
    elif behave == "wrong_table":
        answer[24] ^= 1
    elif behave == "bad_count":
        answer[40] += 1
    elif behave == "wide_rows":
        size, count = struct.unpack_from("<I", answer, 4)[0], struct.unpack_from("<I", answer, 40)[0]
        struct.pack_into("<I", answer, 4, size + 4 * count)
        struct.pack_into("<I", answer, 44, 4 * DIM + 4)
        answer += bytes(4 * count)
    elif behave == "trailing":
        answer += b"more"
    elif behave == "oversized_error":
        answer[37] = 19
        answer[4:8] = b"\xff\xff\xff\xff"


def _frame(request: Request, version: int, body: bytes) -> bytes:
    head = HEADER.pack(MAGIC, len(body), request.id, version, request.table, 0, request.opcode, 0, 0)
    return head + body


def _error(request: Request, status: int, detail: int, message: str) -> bytes:
    time_ms = RETRY_AFTER_MS if detail == 4 else 0
    body = message.encode()
    return HEADER.pack(MAGIC, len(body), request.id, 0, request.table, time_ms, request.opcode, status, detail) + body


def _read(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
