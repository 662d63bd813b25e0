"""Files over http(s). A broken transfer resumes where it stopped, with growing pauses between attempts."""

from __future__ import annotations

import io
import ssl
import time
from functools import cache
from typing import IO

import httpx

from elasticctr.errors import (
    ConfigError,
    DataError,
    DeadlineExceeded,
    ElasticCTRError,
    NotFound,
    Unauthorized,
    Unavailable,
    class_of_http,
)

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


class HttpFiles:
    """Every URL is a file: web servers have no reliable directories or globs."""

    def __init__(self, *, timeout_s: float = 60.0, retries: int = 4) -> None:
        self._timeout_s = timeout_s
        self._retries = retries

    def is_file(self, path: str) -> bool:
        try:
            self.request(path, method="HEAD").close()
        except NotFound:
            return False
        return True

    def is_directory(self, path: str) -> bool:
        return False

    def walk(self, path: str) -> list[str]:
        raise ConfigError(f"{path}: a web server has no directories; list the files' URLs")

    def glob(self, pattern: str) -> list[str]:
        raise ConfigError(f"{pattern}: globs do not work over http; list the files' URLs")

    def stamp(self, path: str) -> tuple[int | None, str]:
        response = self.request(path, method="HEAD")
        response.close()
        return _length(response), _version(response)

    def open(self, path: str) -> IO[bytes]:
        return _Body(self, path)  # type: ignore[return-value]

    def pause(self, attempt: int, error: ElasticCTRError) -> None:
        """Waits before another attempt, or raises `error` after the last one."""
        if attempt >= self._retries:
            raise error
        time.sleep(min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S))

    def request(self, path: str, method: str = "GET", offset: int = 0) -> httpx.Response:
        """The answer with its body unread, from byte `offset` if the server can. The caller closes it."""
        client = _client(self._timeout_s)
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        attempt = 0
        while True:
            try:
                response = client.send(client.build_request(method, path, headers=headers), stream=True)
                if response.status_code < 300:
                    return response
                response.close()
                if method == "HEAD" and response.status_code in (405, 501):
                    method = "GET"
                    continue
                error = _explain_status(path, response)
                if response.status_code not in _TRANSIENT:
                    raise error
            except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError) as e:
                raise ConfigError(f"{path}: not a usable URL: {e}") from None
            except httpx.HTTPError as e:
                error = self.explain(path, e)
            self.pause(attempt, error)
            attempt += 1

    def explain(self, path: str, error: httpx.HTTPError) -> ElasticCTRError:
        if isinstance(error, httpx.TimeoutException):
            return DeadlineExceeded(f"{path}: no answer within {self._timeout_s:g} s")
        reason = str(error) or type(error).__name__
        return Unavailable(f"{path}: cannot be fetched: {reason}; check the address and that the server runs")


class _Body(io.RawIOBase):
    """The bytes of one URL."""

    _is_cut: bool  # the connection, so that the next read opens another

    def __init__(self, files: HttpFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._start(files.request(path))
        self._version = _version(self._response)
        self._length = _length(self._response)
        self._offset = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        attempt = 0
        while True:
            try:
                if self._is_cut:
                    self._reopen()
                return self._take(buffer)
            except httpx.HTTPError as e:
                self._is_cut = True
                self._files.pause(attempt, self._files.explain(self._path, e))
                attempt += 1

    def jump(self, offset: int) -> None:
        """Continues at `offset` without fetching what precedes it, if the server can. REQUIRES: 0 < offset."""
        if self._length is not None and offset >= self._length:
            raise DataError(f"has {self._length} bytes, and byte {offset} was asked for; has it changed?", self._path)
        self._response.close()
        self._offset, self._is_cut = offset, True

    def _start(self, response: httpx.Response) -> None:
        self._response = response
        self._pieces = response.iter_raw()
        self._piece = memoryview(b"")
        self._is_cut = False

    def _take(self, buffer: memoryview) -> int:
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        count = min(len(buffer), len(self._piece))
        buffer[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        self._offset += count
        return count

    def _reopen(self) -> None:
        self._response.close()
        self._start(self._files.request(self._path, offset=self._offset))
        if _version(self._response) != self._version:
            raise DataError("changed on the server while it was read; start again", self._path)
        if self._response.status_code == httpx.codes.OK:
            self._pass(self._offset)

    def _pass(self, count: int) -> None:
        """Over what was read: the server ignored the range."""
        scratch = memoryview(bytearray(1 << 20))
        offset, self._offset = self._offset, 0
        try:
            while self._offset < count and self._take(scratch[: count - self._offset]):
                pass
        finally:
            self._offset = offset

    def close(self) -> None:
        self._response.close()
        super().close()


@cache  # reading the system's authorities takes longer than many an answer
def _client(timeout_s: float) -> httpx.Client:
    return httpx.Client(
        headers={"User-Agent": "elasticctr", "Accept-Encoding": "identity"},
        timeout=timeout_s,
        follow_redirects=True,
        verify=ssl.create_default_context(),
        # A connection ends with its answer: nobody closes this client.
        limits=httpx.Limits(max_keepalive_connections=0),
    )


def _length(response: httpx.Response) -> int | None:
    length = response.headers.get("Content-Length")
    return int(length) if length else None


def _version(response: httpx.Response) -> str:
    return str(response.headers.get("ETag") or response.headers.get("Last-Modified") or "")


def _explain_status(path: str, response: httpx.Response) -> ElasticCTRError:
    said = f"{path}: the server answers {response.status_code} {response.reason_phrase}"
    if response.status_code in _TRANSIENT:
        return Unavailable(f"{said}; try again later")
    kind = class_of_http(response.status_code)
    if kind is Unauthorized:
        return Unauthorized(f"{said}; put credentials into the URL or ask for access")
    return kind(said)
