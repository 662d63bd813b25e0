"""Files over http(s). A broken transfer resumes where it stopped, with growing pauses between attempts."""

from __future__ import annotations

import contextlib
import http.client
import io
import time
import urllib.error
import urllib.request
from typing import IO

from elasticctr.errors import (
    ConfigError,
    DataError,
    DeadlineExceeded,
    ElasticCTRError,
    NotFound,
    Unauthorized,
    Unavailable,
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
            self._open(path, method="HEAD").close()
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
        with contextlib.closing(self._open(path, method="HEAD")) as response:
            length = response.headers.get("Content-Length")
            return int(length) if length else None, _version(response)

    def open(self, path: str) -> IO[bytes]:
        return _Body(self, path)  # type: ignore[return-value]

    def pause(self, attempt: int, error: ElasticCTRError) -> None:
        """Waits before another attempt, or raises `error` after the last one."""
        if attempt >= self._retries:
            raise error
        time.sleep(min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S))

    def _open(self, path: str, method: str = "GET", offset: int = 0) -> http.client.HTTPResponse:
        headers = {"User-Agent": "elasticctr", "Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        attempt = 0
        while True:
            try:
                request = urllib.request.Request(path, headers=headers, method=method)
                response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=self._timeout_s)
                return response
            except urllib.error.HTTPError as e:
                e.close()
                if method == "HEAD" and e.code in (405, 501):
                    method = "GET"
                    continue
                if e.code not in _TRANSIENT:
                    raise _explain_status(path, e) from None
                self.pause(attempt, _explain_status(path, e))
            except (OSError, http.client.HTTPException) as e:
                self.pause(attempt, explain_failure(path, e, self._timeout_s))
            except ValueError as e:
                raise ConfigError(f"{path}: not a usable URL: {e}") from None
            attempt += 1


class _Body(io.RawIOBase):
    """The bytes of one URL. Unlike http.client, notices when the server closes early."""

    def __init__(self, files: HttpFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._response = files._open(path)
        self._version = _version(self._response)
        length = self._response.headers.get("Content-Length")
        self._length = int(length) if length else None
        self._offset = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        attempt = 0
        while True:
            try:
                count = self._response.readinto(buffer)
                if count or self._length is None or self._offset >= self._length or not len(buffer):
                    self._offset += count
                    return count
                failure: ElasticCTRError = Unavailable(
                    f"{self._path}: the server closed the connection after {self._offset} of {self._length} bytes"
                )
            except (OSError, http.client.HTTPException) as e:
                failure = explain_failure(self._path, e, self._files._timeout_s)
            self._files.pause(attempt, failure)
            attempt += 1
            self._reopen()

    def jump(self, offset: int) -> None:
        """Continues at `offset` without fetching what precedes it, if the server can. REQUIRES: 0 < offset."""
        if self._length is not None and offset >= self._length:
            raise DataError(f"has {self._length} bytes, fewer than offset {offset}; has it changed?", self._path)
        self._offset = offset
        self._reopen()

    def _reopen(self) -> None:
        self._response.close()
        self._response = self._files._open(self._path, offset=self._offset)
        if _version(self._response) != self._version:
            raise DataError("changed on the server while it was being read; start again", self._path)
        if self._response.status == http.client.OK:
            # The server ignored the range: skip what has been read.
            left = self._offset
            while left > 0 and (got := len(self._response.read(min(left, 1 << 20)))):
                left -= got

    def close(self) -> None:
        self._response.close()
        super().close()


def _version(response: http.client.HTTPResponse) -> str:
    return response.headers.get("ETag") or response.headers.get("Last-Modified") or ""


def explain_failure(path: str, error: Exception, timeout_s: float) -> ElasticCTRError:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return DeadlineExceeded(f"{path}: no answer within {timeout_s:g} s")
    return Unavailable(f"{path}: cannot be fetched: {reason}; check the address and that the server runs")


def _explain_status(path: str, error: urllib.error.HTTPError) -> ElasticCTRError:
    said = f"{path}: the server answered {error.code} {error.reason}"
    if error.code in (404, 410):
        return NotFound(said)
    if error.code in (401, 403, 407):
        return Unauthorized(f"{said}; put credentials into the URL or ask for access")
    if error.code in _TRANSIENT:
        return Unavailable(f"{said}; try again later")
    return DataError(said)
