"""Files that exist completely or not at all, even after a crash."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticctr.errors import ConfigError, Corruption, ElasticCTRError, InternalError, NotFound

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DiskFull(InternalError):
    """The disk is full and nothing was written. Retry once there is space."""

    @property
    def code(self) -> str:
        return InternalError.__name__


def is_disk_full(error: OSError) -> bool:
    return error.errno in _DISK_FULL


def explain_write(error: OSError, path: Path) -> ElasticCTRError:
    """An operating system's write error as an ElasticCTRError."""
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return ConfigError(f"{path}: a file is in the place of a directory; choose another path")
    if isinstance(error, PermissionError):
        return ConfigError(f"{path}: permission denied; make it writable for this user")
    if is_disk_full(error):
        return DiskFull(f"{path}: the disk is full ({error.strerror}); free some space. Served versions are untouched")
    return InternalError(f"{path}: cannot be written: {error.strerror or error}")


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes, *, writer: str = "") -> None:
    """Replaces `path`: a reader, or this process after a crash, finds the old bytes or the new. If several may write at
    once, `writer` names each, so that none puts another's half-written file in place."""
    temporary = path.with_name(f".{path.name}{writer and '.' + writer}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as e:
        temporary.unlink(missing_ok=True)
        raise explain_write(e, path) from None


def write_json(path: Path, value: Mapping[str, Any], *, writer: str = "") -> None:
    write_atomic(path, json.dumps(value, separators=(",", ":")).encode(), writer=writer)


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
