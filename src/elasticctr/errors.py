"""Every error a user can meet, one closed tree. The native code throws the same codes.

ElasticCTRError
├── ConfigError          a setting is unknown, missing or out of range
├── DataError            a sample, file or stream does not follow its format (path, line)
├── NotFound             a file, run, table or version does not exist
├── AlreadyExists        it exists and would be overwritten
├── Corruption           bytes that fail their checksum or contradict themselves
├── FailedPrecondition   a valid request at the wrong time or for the wrong state
├── Unauthorized         no or wrong credentials
├── Unavailable          try again later (retry_after_s)
├── DeadlineExceeded     it took longer than allowed
└── InternalError        a bug, or a machine out of memory or disk

A message says what happened, to which file / line / version, and what to do next.
"""

from __future__ import annotations

from pathlib import Path


class ElasticCTRError(Exception):
    """Root of the tree. `exit_status` is the exit status of a command that fails with it."""

    exit_status = 19

    @property
    def code(self) -> str:
        return type(self).__name__


class ConfigError(ElasticCTRError):
    exit_status = 10


class DataError(ElasticCTRError):
    exit_status = 11

    def __init__(self, message: str, path: str | Path | None = None, line: int | None = None) -> None:
        self.path = str(path) if path is not None else None
        self.line = line
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(where + message)


class NotFound(ElasticCTRError):
    exit_status = 12


class AlreadyExists(ElasticCTRError):
    exit_status = 13


class Corruption(ElasticCTRError):
    exit_status = 14


class FailedPrecondition(ElasticCTRError):
    exit_status = 15


class Unauthorized(ElasticCTRError):
    exit_status = 16


class Unavailable(ElasticCTRError):
    exit_status = 17

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class DeadlineExceeded(ElasticCTRError):
    exit_status = 18


class InternalError(ElasticCTRError):
    exit_status = 19
