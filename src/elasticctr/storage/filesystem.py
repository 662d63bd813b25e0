"""What `resolve` needs from a file system, and its implementation for the local disk."""

from __future__ import annotations

import errno
import glob
import os
from pathlib import Path
from typing import IO, Protocol

from elasticctr.errors import DataError, ElasticCTRError, InternalError, NotFound, Unauthorized


class FileSystem(Protocol):
    """Paths are full locations as the user wrote them. Every method may raise errors of the ElasticCTR tree."""

    def is_file(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def walk(self, path: str) -> list[str]:
        """Every file below a directory, in any order."""
        ...

    def glob(self, pattern: str) -> list[str]:
        """Files and directories that match, in any order."""
        ...

    def stamp(self, path: str) -> tuple[int | None, str]:
        """Size in bytes and a text that changes whenever the file is written again."""
        ...

    def open(self, path: str) -> IO[bytes]:
        """The bytes as stored."""
        ...


class LocalFiles:
    def is_file(self, path: str) -> bool:
        # Includes pipes such as /dev/stdin or <(zcat log), which can be read once, from the start.
        return Path(path).exists() and not Path(path).is_dir()

    def is_directory(self, path: str) -> bool:
        return Path(path).is_dir()

    def walk(self, path: str) -> list[str]:
        def refuse(error: OSError) -> None:
            raise explain(error, error.filename or path)

        found = []
        for directory, _, names in os.walk(path, onerror=refuse, followlinks=True):
            found += [str(Path(directory, name)) for name in names]
        return found

    def glob(self, pattern: str) -> list[str]:
        return glob.glob(pattern, recursive=True)  # noqa: PTH207

    def stamp(self, path: str) -> tuple[int | None, str]:
        try:
            status = Path(path).stat()
        except OSError as e:
            raise explain(e, path) from None
        return status.st_size, str(status.st_mtime_ns)

    def open(self, path: str) -> IO[bytes]:
        try:
            return open(path, "rb", buffering=0)  # noqa: PTH123
        except OSError as e:
            raise explain(e, path) from None


def explain(error: OSError, path: str) -> ElasticCTRError:
    """An operating system's read error as an ElasticCTRError."""
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{path}: no such file or directory")
    if isinstance(error, PermissionError):
        return Unauthorized(f"{path}: permission denied; make it readable for this user")
    if error.errno in (errno.EIO, errno.ESTALE, errno.ENOMEM):
        return InternalError(f"{path}: cannot be read: {error.strerror}")
    return DataError(f"cannot be read: {error.strerror or error}", path)
