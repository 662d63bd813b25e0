"""A scripted HTTP server, for what a real one does not do on demand: hang, cut, refuse."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import Any

Behaviour = str | tuple[str, Any]


class FakeServer:
    """`script` says what to do with the next requests; afterwards, or without one, it answers.

    answer, ("answer", seconds late), ("status", (number, body, headers)), hang, cut, half (of an answer), garbage,
    chunked, close (answer, and end the connection), stale (answer, and end it later without saying so)
    """

    def __init__(self, *script: Behaviour, version: int = 1, tls: ssl.SSLContext | None = None) -> None:
        self.script = list(script)
        self.version = version
        self.requests: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.connections = 0
        self._tls = tls
        self._stopped = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as reader:
                while self._answer_one(connection, reader):
                    pass

    def _answer_one(self, connection: socket.socket, reader: Any) -> bool:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = reader.readline()
            if not line:
                return False
            head += line
        length = int(head.lower().split(b"content-length:")[1].split()[0])
        request = json.loads(reader.read(length))
        self.heads.append(head.decode())
        self.requests.append(request)
        told = self.script.pop(0) if self.script else "answer"
        value: Any
        what, value = told if isinstance(told, tuple) else (told, None)
        if what == "hang":
            self._stopped.wait(60)
            return False
        if what == "cut":
            return False
        if what == "garbage":
            connection.sendall(b"SSH-2.0-nothing\r\n\r\n")
            return False
        if what == "status":
            status, body, headers = value
            connection.sendall(_format(status, json.dumps(body).encode(), headers))
            return True
        if what == "answer" and value:
            time.sleep(value)
        body = json.dumps(self._answer(request)).encode()
        if what == "half":
            connection.sendall(_format(200, body, {})[:-10])
            return False
        if what == "chunked":
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for part in (body[:5], body[5:]):
                connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            connection.sendall(b"0\r\n\r\n")
            return True
        connection.sendall(_format(200, body, {"Connection": "close"} if what == "close" else {}))
        return what not in ("close", "stale")

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        samples = request.get("samples") or request.get("candidates") or request["lines"]
        scores = [(i + 1) / 100 for i in range(len(samples))]
        coverage = {"asked": 26, "found": 25, "degraded": False}
        return {
            "model": "ctr",
            "version": self.version,
            "variant": "live",
            "id": request.get("id", "made"),
            "scores": scores,
            "coverage": coverage,
        }

    def close(self) -> None:
        self._stopped.set()
        # Closing alone would leave the port open for as long as accept() waits.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _format(status: int, body: bytes, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body
