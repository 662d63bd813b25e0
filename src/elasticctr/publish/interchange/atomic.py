"""A file that appears complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from elasticctr.errors import ConfigError, ElasticCTRError, InternalError


class AtomicFile:
    """Written as `.NAME.tmp` beside its place; `finish` syncs it and renames it, or removes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.tmp")
        with self.explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.stream = open(self._temporary, "wb")  # noqa: SIM115, PTH123

    def write(self, data: bytes | memoryview) -> None:
        with self.explained():
            self.stream.write(data)

    def finish(self, failed: bool = False) -> None:
        try:
            with self.stream:
                if not failed:
                    self.stream.flush()
                    os.fsync(self.stream.fileno())
            if failed:
                self._temporary.unlink(missing_ok=True)
                return
            self._temporary.replace(self._path)
            directory = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as e:
            self._temporary.unlink(missing_ok=True)
            if not failed:
                raise _explain(e, self._path) from None

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of the system inside become ours."""
        try:
            yield
        except OSError as e:
            raise _explain(e, self._path) from None


def _explain(error: OSError, path: Path) -> ElasticCTRError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InternalError(f"{path}: the disk is full; make room and run it again")
    return ConfigError(f"{path}: cannot be written: {error.strerror or error}")
