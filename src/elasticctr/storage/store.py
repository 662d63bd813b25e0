"""Files below one location, read and written whole: on the local disk, S3, HDFS or any other fsspec file system.

    store = open_store("s3://models/repo")
    store.write_bytes("ctr/donefile", line)

Names are relative, with '/' between their parts. A file appears complete or not at all: local and HDFS files are
written under a temporary name and renamed, and object stores show an object only once it is closed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Protocol

from elasticctr.errors import ConfigError, ElasticCTRError, InternalError, NotFound, Unauthorized, Unavailable
from elasticctr.storage.atomic import replacing, sync_directory, write_new
from elasticctr.storage.filesystem import explain

_PROTOCOL = re.compile(r"^([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
TEMPORARY = ".writing-"  # names with this prefix are unfinished files
LEFT_FOR_S = 3600.0  # an unfinished file this old was abandoned
_LOCK_WAIT_S = 10.0


class Store(Protocol):
    """Every method may raise errors of the ElasticCTR tree; a missing file is NotFound."""

    url: str

    def read_bytes(self, name: str) -> bytes: ...

    def open(self, name: str) -> IO[bytes]:
        """Its bytes, seekable."""
        ...

    def create(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """A file to write into. It replaces `name` if the block succeeds and vanishes if it raises."""
        ...

    def write_bytes(self, name: str, data: bytes) -> None: ...

    def write_new(self, name: str, data: bytes) -> bool:
        """Writes a file that must not exist yet; False if it does."""
        ...

    def append(self, name: str, data: bytes) -> None:
        """Appends to a file, creating it if needed: all of `data` or, with an error, nothing. Keeps what others append
        meanwhile, and a repeated request adds nothing twice."""
        ...

    def replace(self, name: str, data: bytes, expected: bytes) -> bool:
        """Writes a file if it still holds `expected`; False if it does not. On HDFS the two steps are not atomic."""
        ...

    def list(self, name: str = "") -> list[str]:
        """The names directly below, sorted; directories end with '/'. Empty if there is nothing."""
        ...

    def exists(self, name: str) -> bool: ...

    def size(self, name: str) -> int: ...

    def modified(self, name: str) -> float | None:
        """When a file, or the last file below a directory, was written, in unix seconds; None if unknown."""
        ...

    def delete(self, name: str) -> None:
        """Removes a file. A missing file is no error."""
        ...

    def delete_tree(self, name: str) -> None: ...

    def sweep(self, name: str) -> None:
        """Removes unfinished files of killed writers directly below, once they are an hour old."""
        ...


def open_store(url: str) -> Store:
    """The store at a path or URL, which need not exist yet."""
    if not url.strip():
        raise ConfigError("the location is empty; name a directory or a URL such as s3://bucket/path")
    match = _PROTOCOL.match(url)
    protocol = match[1].lower() if match else "file"
    if protocol == "file":
        return LocalStore(url.removeprefix("file://"))
    if protocol in ("http", "https"):
        raise ConfigError(f"{url}: a web server cannot be written to; use a path, s3:// or hdfs://")
    from elasticctr.storage.remote_store import open_remote_store

    return open_remote_store(protocol, url)


def check_name(name: str) -> str:
    """Returns the name, or raises if it would leave the store."""
    if name.startswith("/") or "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ConfigError(f"{name!r}: not a valid name in a store")
    return name


class LocalStore:
    def __init__(self, root: str) -> None:
        self.url = root.rstrip("/") or "/"
        self._root = Path(self.url)

    def read_bytes(self, name: str) -> bytes:
        with _told(self._path(name)) as path:
            return path.read_bytes()

    def open(self, name: str) -> IO[bytes]:
        with _told(self._path(name)) as path:
            return path.open("rb")

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        path = self._path(name)
        with _told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, _temporary(path)) as temporary, temporary.open("wb") as file:
                yield file

    def write_bytes(self, name: str, data: bytes) -> None:
        with self.create(name) as file:
            file.write(data)

    def write_new(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with _told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return write_new(path, data, _temporary(path))

    def append(self, name: str, data: bytes) -> None:
        with _told(self._path(name)) as path:
            path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not path.exists()
            with _locked(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
                size = os.fstat(file).st_size
                try:
                    rest = memoryview(data)
                    while rest:
                        rest = rest[os.write(file, rest) :]
                    os.fsync(file)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.ftruncate(file, size)
                        os.fsync(file)
                    raise
            if is_new:
                sync_directory(path.parent)

    def replace(self, name: str, data: bytes, expected: bytes) -> bool:
        path = self._path(name)
        try:
            with _told(path), _locked(path, os.O_RDONLY):
                if path.read_bytes() != expected:
                    return False
                self.write_bytes(name, data)
        except NotFound:
            return False
        return True

    def list(self, name: str = "") -> list[str]:
        path = self._path(name) if name else self._root
        try:
            found = [entry.name + "/" * entry.is_dir() for entry in os.scandir(path)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as e:
            raise explain(e, str(path)) from None
        return sorted(entry for entry in found if not entry.startswith(TEMPORARY))

    def exists(self, name: str) -> bool:
        with _told(self._path(name)) as path:
            return path.exists()

    def size(self, name: str) -> int:
        with _told(self._path(name)) as path:
            return path.stat().st_size

    def modified(self, name: str) -> float | None:
        with _told(self._path(name)) as path:
            last = path.stat().st_mtime
            for directory, directories, files in os.walk(path):
                for entry in (*directories, *files):
                    with contextlib.suppress(FileNotFoundError):
                        last = max(last, Path(directory, entry).lstat().st_mtime)
            return last

    def delete(self, name: str) -> None:
        with _told(self._path(name)) as path:
            path.unlink(missing_ok=True)

    def delete_tree(self, name: str) -> None:
        with _told(self._path(name)) as path, contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sweep(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), _told(self._path(name)) as path:
            for left in path.glob(f"{TEMPORARY}*") if path.is_dir() else ():
                if left.is_file() and time.time() - left.stat().st_mtime > LEFT_FOR_S:
                    left.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._root / check_name(name)


@contextmanager
def _locked(path: Path, flags: int) -> Iterator[int]:
    """Opens the file under a lock that other ElasticCTR processes respect."""
    deadline_s = time.monotonic() + _LOCK_WAIT_S
    while True:
        file = os.open(path, flags | os.O_CLOEXEC, 0o666)
        try:
            if not _try_lock(file):
                if time.monotonic() > deadline_s:
                    raise Unavailable(f"{path}: another process holds its lock; try again", 1.0)
                time.sleep(0.005)
                continue
            # The file may have been replaced while this process waited.
            if _is_at(file, path):
                yield file
                return
        finally:
            os.close(file)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as e:
        # Some network file systems have no locks; a single append is atomic there too.
        if e.errno not in (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK):
            raise
    return True


@contextmanager
def _told(path: Path) -> Iterator[Path]:
    try:
        yield path
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file or directory") from None
    except PermissionError:
        raise Unauthorized(f"{path}: permission denied") from None
    except OSError as e:
        raise _explain(e, path) from None


def _explain(error: OSError, path: Path) -> ElasticCTRError:
    if error.errno == errno.ENOSPC:
        return InternalError(f"{path}: the disk is full; nothing was written. Free some space and try again")
    return InternalError(f"{path}: cannot be read or written: {error.strerror or error}")


def _temporary(path: Path) -> Path:
    return path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
