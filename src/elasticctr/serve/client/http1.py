"""HTTP/1.1 as bytes: formats requests and parses answers as they arrive. Knows no sockets.

Supports what a prediction client needs: bodies with Content-Length, in chunks, or until the connection ends.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_HEAD_BYTES = 64 << 10
MAX_BODY_BYTES = 1 << 30


class TransportError(Exception):
    """No answer: the connection was refused or broken, or it is not HTTP. Worth trying another endpoint."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    headers: dict[bytes, bytes]  # names in lower case
    body: bytes
    keep_alive: bool


def format_head(path: str, authority: str, token: str | None) -> bytes:
    """The part of a POST's head that is the same for all calls."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
    )
    if token is not None:
        head += f"Authorization: Bearer {token}\r\n"
    return head.encode("ascii", "replace")


class ResponseReader:
    """Parses one answer, fed piece by piece."""

    __slots__ = ("_body", "_buffer", "_chunked", "_headers", "_keep_alive", "_left", "_status", "is_empty")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._headers: dict[bytes, bytes] | None = None
        self._status = 0
        self._left = -1  # bytes of the body to come; -1: until the connection ends
        self._chunked = False
        self._keep_alive = True
        self._body = bytearray()
        self.is_empty = True  # nothing has arrived

    def feed(self, data: bytes) -> HttpResponse | None:
        """Returns the answer once it is complete. Raises TransportError if it is not HTTP."""
        self.is_empty = False
        self._buffer += data
        while self._headers is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD_BYTES:
                    raise TransportError("the answer's head is longer than 64 KiB")
                return None
            self._read_head(bytes(self._buffer[:end]))
            del self._buffer[: end + 4]
        if self._chunked:
            return self._finish() if self._read_chunks() else None
        if self._left < 0:
            if len(self._buffer) > MAX_BODY_BYTES:
                raise TransportError("the answer is longer than 1 GiB")
            return None
        if len(self._buffer) < self._left:
            return None
        self._body = self._buffer[: self._left]
        # Bytes after the answer belong to no request.
        self._keep_alive = self._keep_alive and len(self._buffer) == self._left
        return self._finish()

    def feed_end(self) -> HttpResponse:
        """Handles the end of the connection."""
        if self._headers is not None and self._left < 0 and not self._chunked:
            self._body, self._keep_alive = self._buffer, False
            return self._finish()
        raise TransportError(
            "closed the connection without an answer" if self.is_empty else "closed the connection in mid-answer"
        )

    def _finish(self) -> HttpResponse:
        return HttpResponse(self._status, self._headers or {}, bytes(self._body), self._keep_alive)

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        parts = first.split(b" ", 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit() or len(parts[1]) != 3:
            raise TransportError(f"answered with something other than HTTP: {first[:60]!r}")
        status = int(parts[1])
        if status < 200:  # 100 Continue and the like: the answer follows
            return
        headers = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon:
                raise TransportError(f"sent a header line without a colon: {line[:60]!r}")
            headers[name.lower()] = value.strip()
        self._status, self._headers = status, headers
        connection = headers.get(b"connection", b"").lower()
        self._keep_alive = connection != b"close" and (parts[0] != b"HTTP/1.0" or connection == b"keep-alive")
        length = headers.get(b"content-length")
        self._chunked = b"chunked" in headers.get(b"transfer-encoding", b"").lower()
        if self._chunked:
            return
        if length is not None:
            if not length.isdigit() or int(length) > MAX_BODY_BYTES:
                raise TransportError(f"sent a Content-Length of {length[:40]!r}")
            self._left = int(length)
        elif status in (204, 304):
            self._left = 0

    def _read_chunks(self) -> bool:
        while True:
            if self._left < 0:
                end = self._buffer.find(b"\r\n")
                if end < 0:
                    return False
                size = self._buffer[:end].split(b";")[0].strip()
                try:
                    self._left = int(size, 16)
                except ValueError:
                    raise TransportError(f"sent a chunk of size {bytes(size[:20])!r}") from None
                if self._left < 0 or len(self._body) + self._left > MAX_BODY_BYTES:
                    raise TransportError("the answer is longer than 1 GiB")
                del self._buffer[: end + 2]
            if self._left == 0:
                # Trailers, usually none, end with an empty line.
                return self._buffer.startswith(b"\r\n") or b"\r\n\r\n" in self._buffer
            if len(self._buffer) < self._left + 2:
                return False
            self._body += self._buffer[: self._left]
            del self._buffer[: self._left + 2]
            self._left = -1
