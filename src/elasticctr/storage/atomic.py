"""Files that are there completely or not at all, whatever dies meanwhile. Everything that others read is written here.

    write_json(path, {...})                        # small ones, whole
    with atomic_file(path) as file: ...            # long ones, piece by piece
    with replacing(path) as temporary: ...         # by whoever wants a name to write to

The bytes go to a temporary name beside the file; they are on the disk before it is renamed, the name after.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from elasticctr.errors import AlreadyExists, ConfigError, Corruption, ElasticCTRError, InternalError, NotFound

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DiskFull(InternalError):
    """The disk is full and nothing was written. Retry once there is space."""


def is_disk_full(error: OSError) -> bool:
    return error.errno in _DISK_FULL


def explain_write(error: OSError, path: Path) -> ElasticCTRError:
    """An operating system's write error as an ElasticCTRError."""
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return ConfigError(f"{path}: a file is where a directory belongs; name another place")
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return ConfigError(f"{path}: permission denied; make it writable for this user")
    if isinstance(error, IsADirectoryError):
        return ConfigError(f"{path}: is a directory; give the name of a file")
    if is_disk_full(error):
        return DiskFull(f"{path}: the disk is full ({error.strerror}); free some space. Served versions are untouched")
    return InternalError(f"{path}: cannot be written: {error.strerror or error}")


def sync_directory(path: Path) -> None:
    """Puts the names in a directory on the disk."""
    _sync(path)


def put(temporary: Path, path: Path) -> None:
    """Gives a file that is written its name."""
    _sync(temporary)
    temporary.replace(path)
    sync_directory(path.parent)


@contextmanager
def replacing(path: Path, temporary: Path | None = None) -> Iterator[Path]:
    """A name to write to. What is there after the block replaces `path`; if the block fails, nothing changes."""
    temporary = temporary or path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        put(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def atomic_file(path: Path, *, overwrite: bool = False) -> Iterator[IO[bytes]]:
    """A stream to what becomes `path` after the block. Makes the directory. Raises AlreadyExists."""
    if path.exists() and not overwrite:
        raise AlreadyExists(f"{path}: exists already; choose another name or add --overwrite")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, own_temporary(path)) as temporary, temporary.open("wb") as file:
            yield file
    except OSError as e:
        raise explain_write(e, path) from None


def write_atomic(path: Path, data: bytes, *, writer: str = "") -> None:
    """Replaces `path`: a reader, or this process after a crash, finds the old bytes or the new. Of several that may
    write at once each is named by `writer`, so that none puts another's half in place."""
    try:
        with replacing(path, path.with_name(f".{path.name}{writer and '.' + writer}.tmp")) as temporary:
            temporary.write_bytes(data)
    except OSError as e:
        raise explain_write(e, path) from None


def write_json(path: Path, value: Mapping[str, Any], *, writer: str = "") -> None:
    write_atomic(path, json.dumps(value, separators=(",", ":")).encode(), writer=writer)


def create(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Writes a file that nobody else knows yet. Raises OSError, as `put`, `replacing` and `write_new` do."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)


def write_new(path: Path, data: bytes, temporary: Path | None = None, *, mode: int = 0o666) -> bool:
    """Makes `path`; False if the name is taken."""
    temporary = temporary or own_temporary(path)
    try:
        create(temporary, data, mode)
        _sync(temporary)
        # A link, unlike a rename, refuses a name that is taken.
        path.hardlink_to(temporary)
        sync_directory(path.parent)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def own_temporary(path: Path) -> Path:
    """A name beside `path` that no other process uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a small JSON file. Raises NotFound, or Corruption if it holds anything else."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except (ValueError, OSError) as e:
        raise Corruption(f"{path}: cannot be read as JSON: {e}") from None
    if not isinstance(value, dict):
        raise Corruption(f"{path}: holds a JSON {type(value).__name__} instead of an object")
    return value


def remove_tree(path: Path) -> None:
    """Removes a directory and its contents. It is renamed first, so a crash leaves no part of it under its name."""
    doomed = path.with_name(f".{path.name}.gone")
    shutil.rmtree(doomed, ignore_errors=True)
    try:
        path.rename(doomed)
    except FileNotFoundError:
        return
    shutil.rmtree(doomed, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
