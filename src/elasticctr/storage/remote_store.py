"""Stores on S3 and HDFS; parted_store.py covers the other fsspec clients."""

from __future__ import annotations

import contextlib
import io
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import IO, Any, TypeVar

import fsspec

from elasticctr.errors import ConfigError, NotFound, Unavailable
from elasticctr.storage.remote import error_code, open_client, open_file, translating
from elasticctr.storage.store import LEFT_FOR_S, TEMPORARY, check_name

T = TypeVar("T")

_BLOCK_BYTES = 8 << 20
_WHOLE_BYTES = 1 << 31  # a condition covers one request, so a guarded write must fit into one
_APPEND_TRIES = 12
_CONFLICTS = ("PreconditionFailed", "412", "ConditionalRequestConflict", "409")
_HDFS_CONFLICTS = ("FileAlreadyExistsException", "AlreadyBeingCreatedException", "RecoveryInProgressException")
# Here an object is invisible until it is closed; elsewhere files are written under another name and renamed.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "az", "memory"}


def open_remote_store(protocol: str, url: str) -> RemoteStore:
    client = _open_client(protocol, url)
    if protocol in ("s3", "s3a", "hdfs", "viewfs"):
        return RemoteStore(protocol, url, client)
    from elasticctr.storage.parted_store import PartedStore

    return PartedStore(protocol, url, client)


def _open_client(protocol: str, url: str) -> Any:
    if protocol in ("s3", "hdfs", "viewfs"):
        return open_client(protocol, url)
    try:
        return fsspec.filesystem(protocol)
    except (ValueError, ImportError) as e:
        raise ConfigError(f"{url}: cannot create a client for {protocol}://: {e}") from None


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
        return self._call(path, lambda: open_file(self._client, self._protocol, path))

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        # Written locally first: on an error midway a client closes, and so publishes, what it was given so far.
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
        """On S3, rewrites the object if it is still the one that was read. On HDFS, appends."""
        path, seen, failure = self._path(name), None, None
        for attempt in range(_APPEND_TRIES):
            before = self._call(path, lambda: self._read_tagged(path))
            if seen is not None and before.data.count(data) > seen:
                return  # the answer was lost, not the write
            seen = before.data.count(data) if seen is None else seen
            try:
                if self._call(path, partial(self._add, path, before, data)):
                    return
            except Unavailable as e:
                failure = e
                if self._is_hdfs:
                    break  # part of a line may be there; the next append closes it
            time.sleep(min(1.0, 0.02 * 2**attempt) * (0.5 + secrets.randbelow(1000) / 1000))
        if self._call(path, lambda: self._read_tagged(path)).data.count(data) > (seen or 0):
            return
        raise failure or Unavailable(f"{path}: other writers keep changing it; try again", retry_after_s=1.0)

    def replace(self, name: str, data: bytes, expected: bytes) -> bool:
        path = self._path(name)
        found = self._call(path, lambda: self._read_tagged(path))
        if not found.is_there or found.data != expected:
            return False
        if self._is_s3:
            return self._call(path, lambda: self._put_if(path, data, found))
        self.write_bytes(name, data)
        return True

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

        def ask() -> bool:
            # Not the client's own exists(), which often takes any error for absence.
            try:
                self._client.info(path)
            except FileNotFoundError:
                return False
            return True

        return self._call(path, ask)

    def size(self, name: str) -> int:
        path = self._path(name)
        return self._call(path, lambda: int(self._client.info(path)["size"]))

    def modified(self, name: str) -> float | None:
        path = self._path(name)

        def find() -> list[float | None]:
            info = self._client.info(path)
            if info["type"] != "directory":
                return [_written_s(info)]
            return [_written_s(entry) for entry in self._client.find(path, detail=True).values()]

        times = self._call(path, find)
        known = [written_s for written_s in times if written_s is not None]
        return max(known) if known and len(known) == len(times) else None

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
        """Object stores leave nothing behind."""
        if not self._renames:
            return
        path = self._path(name)

        def remove() -> None:
            for entry in self._client.ls(path, detail=True):
                is_left = str(entry["name"]).rsplit("/", 1)[-1].startswith(TEMPORARY)
                # HDFS counts in milliseconds. Without a time the file stays.
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
            if self._is_hdfs:
                self._client.makedirs(path.rpartition("/")[0], exist_ok=True)
                _copy(io.BytesIO(data), self._client.open(path, "wb", overwrite=False))
            else:
                self._client.pipe_file(path, data, mode="create")
        except Exception as e:
            if _is_taken(e):
                raise _TakenError from None
            raise

    def _read_tagged(self, path: str) -> _Tagged:
        """A file's contents and tag. The tag is read first, so a change in between makes the conditional write fail."""
        try:
            tag = self._client.info(path).get("ETag")
            return _Tagged(True, tag, bytes(self._client.cat_file(path)))
        except FileNotFoundError:
            return _Tagged(False, None, b"")

    def _add(self, path: str, before: _Tagged, data: bytes) -> bool:
        """Appends to what was read; False if another writer changed it meanwhile."""
        if self._is_s3:
            return self._put_if(path, before.data + data, before)
        try:
            if before.is_there:
                _copy(io.BytesIO(data), self._client.open(path, "ab"))
            else:
                self._create_new(path, data)
        except Exception as e:
            if isinstance(e, _TakenError) or _is_taken(e):
                return False
            raise
        return True

    def _put_if(self, path: str, data: bytes, before: _Tagged) -> bool:
        try:
            if before.is_there:
                self._client.pipe_file(path, data, chunksize=_WHOLE_BYTES, IfMatch=before.tag)
            else:
                self._client.pipe_file(path, data, chunksize=_WHOLE_BYTES, mode="create")
        except Exception as e:
            if _is_taken(e) or isinstance(e, FileNotFoundError):
                return False
            raise
        return True

    @property
    def _is_s3(self) -> bool:
        return self._protocol in ("s3", "s3a")

    @property
    def _is_hdfs(self) -> bool:
        return self._protocol in ("hdfs", "viewfs")

    def _path(self, name: str) -> str:
        return f"{self.url}/{check_name(name)}"

    def _call(self, path: str, call: Callable[[], T]) -> T:
        with translating(self._protocol, path, passing=_TakenError):
            return call()


class _TakenError(Exception):
    """The name of a new file is taken."""


@dataclass(frozen=True, slots=True)
class _Tagged:
    is_there: bool
    tag: str | None  # changes with every write; S3 alone has one
    data: bytes


def _is_taken(error: Exception) -> bool:
    """Whether a conditional write failed because of its condition. Clients have no common error for that."""
    if isinstance(error, FileExistsError):
        return True
    return error_code(error) in _CONFLICTS or any(name in str(error) for name in _HDFS_CONFLICTS)


def _written_s(entry: dict[str, Any]) -> float | None:
    """When a listed file was written: clients give a datetime, HDFS milliseconds."""
    for key in ("LastModified", "last_modified", "modification_time", "mtime", "created"):
        told = entry.get(key)
        if isinstance(told, datetime):
            return told.timestamp()
        if isinstance(told, (int, float)) and told > 0:
            return told / 1000 if key == "modification_time" else float(told)
    return None


@contextmanager
def _spool() -> Iterator[IO[bytes]]:
    import tempfile

    with tempfile.SpooledTemporaryFile(max_size=64 << 20, prefix="elasticctr-") as file:
        yield file


def _copy(source: IO[bytes], target: Any) -> None:
    with target:
        while data := source.read(_BLOCK_BYTES):
            target.write(data)
