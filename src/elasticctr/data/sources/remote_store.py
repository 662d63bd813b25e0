"""Stores that are not the local disk: S3, HDFS, and whatever else fsspec has a client for."""

from __future__ import annotations

import contextlib
import io
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, TypeVar

import fsspec

from elasticctr.data.sources.remote import open_client, translating
from elasticctr.data.sources.store import LEFT_FOR_S, TEMPORARY, check_name
from elasticctr.errors import ConfigError, NotFound

T = TypeVar("T")

_BLOCK_BYTES = 8 << 20
# Where an object is not seen before it is closed; elsewhere files are written under another name and renamed.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "az", "memory"}


def open_remote_store(protocol: str, url: str) -> RemoteStore:
    return RemoteStore(protocol, url, _open_client(protocol, url))


def _open_client(protocol: str, url: str) -> Any:
    if protocol in ("s3", "hdfs", "viewfs"):
        return open_client(protocol, url)
    try:
        return fsspec.filesystem(protocol)
    except (ValueError, ImportError) as e:
        raise ConfigError(f"{url}: no client for {protocol}://: {e}") from None


class RemoteStore:
    def __init__(self, protocol: str, url: str, client: Any) -> None:
        self.url = url.rstrip("/")
        self._protocol = protocol
        self._client = client
        self._renames = protocol not in _OBJECT_STORES

    def read_bytes(self, name: str) -> bytes:
        path = self._path(name)
        return self._call(path, lambda: bytes(self._client.cat_file(path)))

    def open(self, name: str) -> IO[bytes]:
        path = self._path(name)
        return self._call(path, lambda: self._client.open(path, "rb", block_size=_BLOCK_BYTES))

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        # Written here first: a client closes, and so publishes, what it was given even when the writer fails midway.
        with _spool() as file:
            yield file
            file.seek(0)
            self._upload(name, file)

    def write_bytes(self, name: str, data: bytes) -> None:
        path = self._path(name)
        if self._renames:
            self._upload(name, io.BytesIO(data))
        else:
            self._call(path, lambda: self._client.pipe_file(path, data))

    def write_new(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        if self.exists(name):
            return False
        try:
            self._call(path, lambda: self._create_new(path, data))
        except _TakenError:
            return False
        return True

    def append(self, name: str, data: bytes) -> None:
        before = self.read_bytes(name) if self.exists(name) else b""
        self.write_bytes(name, before + data)

    def list(self, name: str = "") -> list[str]:
        path = self._path(name) if name else self.url

        def find() -> list[str]:
            with contextlib.suppress(FileNotFoundError):
                return [
                    str(entry["name"]).rstrip("/").rsplit("/", 1)[-1] + "/" * (entry["type"] == "directory")
                    for entry in self._client.ls(path, detail=True)
                    if str(entry["name"]).strip("/") != str(self._client._strip_protocol(path)).strip("/")
                ]
            return []

        return sorted(entry for entry in self._call(path, find) if not entry.startswith(TEMPORARY))

    def exists(self, name: str) -> bool:
        path = self._path(name)
        return self._call(path, lambda: bool(self._client.exists(path)))

    def size(self, name: str) -> int:
        path = self._path(name)
        return self._call(path, lambda: int(self._client.info(path)["size"]))

    def delete(self, name: str) -> None:
        path = self._path(name)

        def remove() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._client.rm_file(path)

        self._call(path, remove)

    def delete_tree(self, name: str) -> None:
        path = self._path(name)

        def remove() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._client.rm(path, recursive=True)

        self._call(path, remove)

    def sweep(self, name: str) -> None:
        """Nothing is left where there is no renaming."""
        if not self._renames:
            return
        path = self._path(name)

        def remove() -> None:
            for entry in self._client.ls(path, detail=True):
                is_left = str(entry["name"]).rsplit("/", 1)[-1].startswith(TEMPORARY)
                # HDFS counts in milliseconds; where no time is told, it stays.
                written_s = float(entry.get("modification_time") or "inf") / 1000
                if is_left and entry["type"] != "directory" and time.time() - written_s > LEFT_FOR_S:
                    self._client.rm_file(entry["name"])

        with contextlib.suppress(NotFound):
            self._call(path, remove)

    def _upload(self, name: str, file: IO[bytes]) -> None:
        path = self._path(name)
        if not self._renames:
            self._call(path, lambda: _copy(file, self._client.open(path, "wb")))
            return
        parent, _, last = path.rpartition("/")
        temporary = f"{parent}/{TEMPORARY}{last}-{secrets.token_hex(6)}"

        def write() -> None:
            self._client.makedirs(parent, exist_ok=True)
            _copy(file, self._client.open(temporary, "wb"))
            self._client.mv(temporary, path, overwrite=True)

        self._call(path, write)

    def _create_new(self, path: str, data: bytes) -> None:
        try:
            if self._protocol in ("hdfs", "viewfs"):
                self._client.makedirs(path.rpartition("/")[0], exist_ok=True)
                _copy(io.BytesIO(data), self._client.open(path, "wb", overwrite=False))
            else:
                self._client.pipe_file(path, data, mode="create")
        except Exception as e:
            # Clients have no common error for it; S3 says 412 or 409, others FileExistsError in some dress.
            if isinstance(e, FileExistsError) or any(
                word in f"{type(e).__name__} {e}"
                for word in ("Precondition", "pre-condition", "ConditionalRequestConflict", "exist")
            ):
                raise _TakenError from None
            raise

    def _path(self, name: str) -> str:
        return f"{self.url}/{check_name(name)}"

    def _call(self, path: str, call: Callable[[], T]) -> T:
        with translating(self._protocol, path, passing=_TakenError):
            return call()


class _TakenError(Exception):
    """The name of a new file is in use."""


@contextmanager
def _spool() -> Iterator[IO[bytes]]:
    import tempfile

    with tempfile.SpooledTemporaryFile(max_size=64 << 20, prefix="elasticctr-") as file:
        yield file


def _copy(source: IO[bytes], target: Any) -> None:
    with target:
        while data := source.read(_BLOCK_BYTES):
            target.write(data)
