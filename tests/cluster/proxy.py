"""A TCP proxy that can make a network slow, silent or cut, without root."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from types import TracebackType


class Proxy:
    """Passes bytes on to `port` of this machine. While `delay_s` is set each piece waits so long; while `is_silent`
    nothing passes and nothing is closed; `cut` resets all connections, and while `is_down` none is taken."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.delay_s = 0.0
        self.is_silent = False
        self.is_down = False
        self.piece_bytes = 65536
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._is_over = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        pairs, self._pairs = self._pairs, []
        for one in (one for pair in pairs for one in pair):
            _reset(one)

    def close(self) -> None:
        self._is_over = True
        self._listening.close()
        self.cut()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._is_over:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self.is_down:
                _reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=60)
                server.settimeout(None)
            except OSError:
                _reset(client)
                continue
            self._pairs.append((client, server))
            for source, sink in ((client, server), (server, client)):
                with contextlib.suppress(OSError):  # cut already
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(self.piece_bytes):
                if self.delay_s:
                    time.sleep(self.delay_s)
                while self.is_silent and not self._is_over:
                    time.sleep(0.01)
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _reset(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        one.close()
