"""The places an agent may fetch from. A request's `source` opens only if it is below an allowed place."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import httpx

from elasticctr.data.settings import ReadOptions
from elasticctr.errors import ConfigError, Corruption, DataError, NotFound, Unauthorized
from elasticctr.net.client import explain_answer, explain_failure
from elasticctr.storage.locations import open_filesystem

_CHUNK_BYTES = 1 << 20
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./=+@:-]*")


class ShardSource(Protocol):
    """A remote directory of a shard."""

    def open(self, name: str, offset: int) -> AbstractContextManager[tuple[int, Iterator[bytes]]]:
        """The bytes of a file and where they start: at `offset`, or at 0 if the source cannot start in the middle."""
        ...


class HttpSource:
    def __init__(self, url: str, client: httpx.Client) -> None:
        self._url = url
        self._client = client

    @contextmanager
    def open(self, name: str, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        where = f"{self._url}/{name}"
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={offset}-"} if offset else {})
        try:
            with self._client.stream("GET", where, headers=headers) as answer:
                if answer.status_code == 416:
                    raise Corruption(f"{where}: ends before byte {offset}, so it is shorter than listed")
                if answer.status_code not in (200, 206):
                    answer.read()
                    raise explain_answer(answer, where)
                yield _start_of(answer, offset, where), self._chunks(answer, where)
        except httpx.HTTPError as e:
            raise explain_failure(e, where) from None

    def _chunks(self, answer: httpx.Response, where: str) -> Iterator[bytes]:
        try:
            yield from answer.iter_raw()
        except httpx.HTTPError as e:
            raise explain_failure(e, where) from None


def _start_of(answer: httpx.Response, offset: int, where: str) -> int:
    if answer.status_code == 200:
        return 0
    match = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != offset:
        raise DataError(f"{where}: answered with another range than the one from byte {offset}")
    return offset


class LocationSource:
    """A directory in a file system that `elasticctr.storage` supports."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._files = open_filesystem(location, ReadOptions())

    @contextmanager
    def open(self, name: str, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        with self._files.open(f"{self._location}/{name}") as raw:
            start = 0
            if offset and raw.seekable():
                start = raw.seek(offset)
            yield start, iter(lambda: raw.read(_CHUNK_BYTES), b"")


class AllowedSources:
    """The places a source may name: `http(s)://host[:port][/path]` and locations, each with all below it."""

    def __init__(
        self,
        allowed: Sequence[str],
        client: httpx.Client,
        trusted_client: httpx.Client | None = None,
        trusted: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`trusted_client` sends the fleet's secret; it is used only for the hosts and ports of `trusted`."""
        self._client = client
        self._trusted_client, self._trusted = trusted_client, trusted
        self._urls: list[tuple[str, str, int | None, str]] = []
        self._locations: list[str] = []
        for place in allowed:
            if place.startswith(("http://", "https://")):
                self._urls.append(_parse_url(place))
            elif place.strip():
                self._locations.append(_normal(place))
            else:
                raise ConfigError("--allow-source is empty, which would allow everything; name a URL or a directory")
        self._only_loopback = not allowed

    def open(self, source: object) -> ShardSource:
        """Raises DataError if it is not a source, Unauthorized if it is not allowed."""
        if not isinstance(source, str) or len(source) > 2048:
            raise DataError("source must be the URL or location of a shard's directory")
        if source.startswith(("http://", "https://")):
            self._check_url(source)
            return HttpSource(source.rstrip("/"), self._client_for(source))
        location = _normal(source)
        if not any(_is_below(location, allowed) for allowed in self._locations):
            raise Unauthorized(f"{source}: not an allowed source; start the agent with --allow-source DIRECTORY")
        return LocationSource(location)

    def _client_for(self, source: str) -> httpx.Client:
        if self._trusted_client is not None:
            place = _parse_url(source)[:3]
            for url in self._trusted():
                if url.startswith(("http://", "https://")) and _parse_url(url)[:3] == place:
                    return self._trusted_client
        return self._client

    def _check_url(self, source: str) -> None:
        scheme, host, port, path = _parse_url(source)
        if self._only_loopback and host in _LOOPBACK:
            return
        for allowed_scheme, allowed_host, allowed_port, allowed_path in self._urls:
            is_same_place = (scheme, host, port) == (allowed_scheme, allowed_host, allowed_port)
            if is_same_place and (path + "/").startswith(allowed_path.rstrip("/") + "/"):
                return
        raise Unauthorized(
            f"{source}: not an allowed source; start the agent with --allow-source {scheme}://{host}:{port}"
        )


def _parse_url(url: str) -> tuple[str, str, int | None, str]:
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as e:
        raise DataError(f"{url!r} is not a usable URL: {e}") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment or not parts.hostname:
        raise DataError(f"{url!r}: a source has a scheme, host, port and path and nothing else")
    if not _PLAIN_PATH.fullmatch(parts.path) or ".." in parts.path.split("/"):
        raise DataError(f"{url!r}: its path contains characters or steps that a source may not have")
    return parts.scheme, parts.hostname, port, parts.path.rstrip("/")


def _normal(location: str) -> str:
    """A location that cannot lead elsewhere: no '..', no control characters, no symlinks."""
    protocol, separator, path = location.partition("://")
    if not separator:
        protocol, path = "file", location
    if protocol not in ("file", "s3", "hdfs", "viewfs"):
        raise DataError(f"{location!r}: a source must be http(s)://, s3://, hdfs:// or a directory")
    if not path.isprintable() or ".." in path.split("/") or "%" in path or "*" in path or "?" in path:
        raise DataError(f"{location!r}: its path contains characters or steps that a source may not have")
    if protocol == "file":
        if not path.startswith("/"):
            raise DataError(f"{location!r}: a directory must be an absolute path")
        try:
            return str(Path(path).resolve())
        except (OSError, RuntimeError) as e:
            raise NotFound(f"{location}: {e}") from None
    return f"{protocol}://{posixpath.normpath(path)}"


def _is_below(location: str, allowed: str) -> bool:
    return location == allowed or location.startswith(allowed.rstrip("/") + "/")
