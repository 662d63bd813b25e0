"""Files on HDFS and S3 through fsspec. Each needs an extra that a plain install does not include."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, TypeVar
from urllib.parse import urlparse

from elasticctr.errors import ConfigError, ElasticCTRError, NotFound, Unauthorized, Unavailable
from elasticctr.storage.filesystem import explain

T = TypeVar("T")

_READ_BYTES = 8 << 20
_CONNECT_TIMEOUT_S = 10.0
_MISSING = ("NoSuchBucket", "NoSuchKey")


def open_remote(protocol: str, location: str) -> RemoteFiles:
    """The file system of an s3://, hdfs:// or viewfs:// location, set up from its client's usual environment:
    AWS_* variables and files for S3, HADOOP_CONF_DIR for HDFS."""
    return RemoteFiles(protocol, open_client(protocol, location))


def open_client(protocol: str, location: str) -> Any:
    """The bare fsspec client."""
    return _open_s3() if protocol == "s3" else _open_hdfs(protocol, location)


def _open_s3() -> Any:
    try:
        import s3fs
    except ImportError:
        raise ConfigError("s3:// needs another package; install it with: pip install 'elasticctr[s3]'") from None
    return s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)


def _open_hdfs(protocol: str, location: str) -> Any:
    try:
        from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem
    except ImportError:
        raise ConfigError(
            f"{protocol}:// needs another package; install it with: pip install 'elasticctr[hdfs]'"
        ) from None
    url = urlparse(location)
    if url.hostname is not None and url.port is not None:
        _check_listening(location, url.hostname, url.port)
    try:
        if protocol == "viewfs":
            return ViewfsFileSystem(url.hostname, skip_instance_cache=True)
        return HdfsFileSystem(url.hostname, url.port, skip_instance_cache=True)
    except Exception as e:
        raise ConfigError(
            f"{location}: cannot create an HDFS client: {e}; write hdfs://namenode:port/path, "
            "or set HADOOP_CONF_DIR to the directory of core-site.xml and hdfs-site.xml"
        ) from None


def _check_listening(location: str, host: str, port: int) -> None:
    # The client itself would retry forever.
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as e:
        raise Unavailable(f"{location}: no namenode answers at {host}:{port}: {e}; check the address") from None


class RemoteFiles:
    """An fsspec file system whose paths keep their protocol."""

    def __init__(self, protocol: str, filesystem: Any) -> None:
        self._protocol = protocol
        self._filesystem = filesystem

    def is_file(self, path: str) -> bool:
        return self._call(path, lambda: bool(self._filesystem.isfile(path)))

    def is_directory(self, path: str) -> bool:
        return self._call(path, lambda: bool(self._filesystem.isdir(path)))

    def walk(self, path: str) -> list[str]:
        return self._named(path, lambda: self._filesystem.find(path))

    def glob(self, pattern: str) -> list[str]:
        return self._named(pattern, lambda: self._filesystem.glob(pattern))

    def stamp(self, path: str) -> tuple[int | None, str]:
        info = self._call(path, lambda: self._filesystem.info(path))
        stamps = [str(info[key]) for key in ("ETag", "VersionId", "LastModified", "modification_time") if info.get(key)]
        return info.get("size"), " ".join(stamps)

    def open(self, path: str) -> IO[bytes]:
        return self._call(path, lambda: open_file(self._filesystem, self._protocol, path))

    def _named(self, path: str, find: Callable[[], list[str]]) -> list[str]:
        return [str(self._filesystem.unstrip_protocol(found)) for found in self._call(path, find)]

    def _call(self, path: str, call: Callable[[], T]) -> T:
        with translating(self._protocol, path):
            return call()


def open_file(client: Any, protocol: str, path: str) -> IO[bytes]:
    """A seekable file, read a few MiB at a time."""
    if protocol in ("hdfs", "viewfs"):
        return io.BufferedReader(_HdfsBytes(client.open(path, "rb")), _READ_BYTES)
    file: IO[bytes] = client.open(path, "rb", block_size=_READ_BYTES)
    return file


class _HdfsBytes(io.RawIOBase):
    """Adds what the client's reader lacks: readinto, and a seek that returns the position."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._reader.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._reader.seek(offset, whence)
        return int(self._reader.tell())

    def tell(self) -> int:
        return int(self._reader.tell())


def error_code(error: BaseException | None) -> str:
    """S3's code for an error, however deeply the client wrapped it; '' if there is none."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        error = error.__cause__
    return ""


@contextmanager
def translating(protocol: str, path: str, passing: type[Exception] = ElasticCTRError) -> Iterator[None]:
    """A client's errors as ours. Clients raise their own, the operating system's and plain exceptions."""
    try:
        yield
    except (FileNotFoundError, PermissionError) as e:
        raise explain(e, path) from None
    except (ElasticCTRError, passing):
        raise
    except Exception as e:
        text = f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
        if "NoCredentials" in text or "AccessDenied" in text or "Forbidden" in text:
            raise Unauthorized(f"{path}: {text}; set the credentials of {protocol}://") from None
        # Only the server's own statement counts as missing, not a proxy's or resolver's "not found".
        if error_code(e) in _MISSING:
            raise NotFound(f"{path}: {text}") from None
        raise Unavailable(f"{path}: {protocol} request failed: {text}; try again") from None
