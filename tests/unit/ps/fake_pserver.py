"""A pserver that keeps nothing but cursors, speaking the real wire: what the coordinator's tests direct."""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
import time
from pathlib import Path
from typing import Any

HEADER = struct.Struct("<4sIQQQIBBH")


class FakePserver:
    """`cursors` and `group` are there to look at; `fail_save` and `fail_promote` make that fail, and directories that
    are `damaged` fail to load."""

    def __init__(self, shard: int, shards: int = 1) -> None:
        self.shard, self.shards = shard, shards
        self.cursors: dict[int, int] = {}
        self.group: list[int] = []
        self.orders: list[dict[str, Any]] = []
        self.incarnation = 0
        self.fail_save: str | None = None
        self.fail_promote: str | None = None
        self.damaged: set[str] = set()
        self.is_caught_up = True
        self.order = "go"  # that it was given last with a beat
        self.standby = "in_sync"  # what a primary says of its standby
        self.forgotten = 0
        self.said: dict[str, Any] = {}  # of its group, with every beat; a load ends it
        fake = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                while head := _receive(self.request, HEADER.size):
                    magic, size, number, version, table, _, opcode, _, _ = HEADER.unpack(head)
                    body = _receive(self.request, size) if size else b""
                    status, answer = fake.answer(opcode, version, body)
                    self.request.sendall(
                        HEADER.pack(magic, len(answer), number, 0, table, 0, opcode, status, 0) + answer
                    )

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, opcode: int, version: int, body: bytes) -> tuple[int, bytes]:
        while getattr(self, "is_silent", False):  # stopped: it takes connections and answers nothing
            time.sleep(0.05)
        if opcode in (20, 21) and version < self.incarnation:
            return 15, b"an older incarnation of the coordinator"
        self.incarnation = max(self.incarnation, version)
        if opcode == 20:
            count = struct.unpack_from("<I", body)[0]
            self.group = list(struct.unpack_from(f"<{count}Q", body, 8))
            return 0, b""
        if opcode != 21:
            return 0, b"{}"
        order = json.loads(body)
        self.orders.append(order)
        return getattr(self, f"_do_{order['op']}", lambda _: (0, b"{}"))(order)

    def _do_save(self, order: dict[str, Any]) -> tuple[int, bytes]:
        if self.fail_save:
            return 19, self.fail_save.encode()
        directory = Path(order["directory"])
        (directory / f"main.{self.shard}.table").write_bytes(b"rows")
        (directory / f"dense.{self.shard}.bin").write_bytes(b"dense")
        about = {"format": 1, "shard": self.shard, "shards": self.shards, "step": 0, "files": {}}
        about |= {"forgotten": self.forgotten, "cursors": {str(chunk): n for chunk, n in self.cursors.items()}}
        (directory / f"pserver.{self.shard}.json").write_text(json.dumps(about))
        return 0, json.dumps(about).encode()

    def _do_load(self, order: dict[str, Any]) -> tuple[int, bytes]:
        directory = order["directory"]
        self.said = {}
        if directory is None:
            self.cursors = {}
            return 0, b"{}"
        if Path(directory).name in self.damaged:
            return 14, b"a block that fails its checksum"
        parts = [json.loads(p.read_text())["cursors"] for p in sorted(Path(directory).glob("pserver.*.json"))]
        own = parts[min(self.shard, len(parts) - 1)] if parts else {}
        self.cursors = {int(chunk): n for chunk, n in own.items()}
        return 0, b"{}"

    def _do_promote(self, _: dict[str, Any]) -> tuple[int, bytes]:
        return (15, self.fail_promote.encode()) if self.fail_promote else (0, b"{}")

    def _do_forget(self, order: dict[str, Any]) -> tuple[int, bytes]:
        self.forgotten = order["below"]
        return 0, b"{}"

    def _do_stats(self, _: dict[str, Any]) -> tuple[int, bytes]:
        return 0, json.dumps({"is_ready": True, "is_caught_up": self.is_caught_up}).encode()


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            part = connection.recv(size - len(data))
        except OSError:
            return b""
        if not part:
            return b""
        data += part
    return data
