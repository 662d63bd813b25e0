"""Every error a user can meet: one closed tree, and what each error is outside Python. The native code throws the same
codes with the same statuses.

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
from typing import Any, ClassVar


class ElasticCTRError(Exception):
    """Root of the tree. A subclass of a leaf, which says more to Python, is the leaf to everyone else."""

    exit_status: ClassVar[int] = 19  # of a command
    http_status: ClassVar[int] = 500
    grpc_status: ClassVar[int] = 13

    @property
    def code(self) -> str:
        """The name of the leaf."""
        return next((cls.__name__ for cls in type(self).__mro__ if cls in ERRORS), InternalError.__name__)

    def describe(self) -> dict[str, Any]:
        """The one JSON shape of errors."""
        return {"error": {"code": self.code, "message": str(self)}}


class ConfigError(ElasticCTRError):
    exit_status, http_status, grpc_status = 10, 400, 3


class DataError(ElasticCTRError):
    exit_status, http_status, grpc_status = 11, 400, 3

    def __init__(self, message: str, path: str | Path | None = None, line: int | None = None) -> None:
        self.path = str(path) if path is not None else None
        self.line = line
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(where + message)


class NotFound(ElasticCTRError):
    exit_status, http_status, grpc_status = 12, 404, 5


class AlreadyExists(ElasticCTRError):
    exit_status, http_status, grpc_status = 13, 409, 6


class Corruption(ElasticCTRError):
    exit_status, http_status, grpc_status = 14, 500, 15


class FailedPrecondition(ElasticCTRError):
    exit_status, http_status, grpc_status = 15, 412, 9


class Unauthorized(ElasticCTRError):
    exit_status, http_status, grpc_status = 16, 401, 16


class Unavailable(ElasticCTRError):
    exit_status, http_status, grpc_status = 17, 503, 14

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class DeadlineExceeded(ElasticCTRError):
    exit_status, http_status, grpc_status = 18, 504, 4


class InternalError(ElasticCTRError):
    exit_status, http_status, grpc_status = 19, 500, 13


ERRORS: tuple[type[ElasticCTRError], ...] = tuple(ElasticCTRError.__subclasses__())
_BY_CODE = {cls.__name__: cls for cls in ERRORS}
_BY_EXIT_STATUS = {cls.exit_status: cls for cls in ERRORS}
# Where two errors share a status, the later one of the tree is meant: DataError, InternalError.
_BY_HTTP_STATUS = {cls.http_status: cls for cls in ERRORS} | {
    # What other servers and proxies answer.
    403: Unauthorized,
    407: Unauthorized,
    408: DeadlineExceeded,
    410: NotFound,
    425: Unavailable,
    429: Unavailable,
    502: Unavailable,
}


def class_of_code(code: str) -> type[ElasticCTRError] | None:
    return _BY_CODE.get(code)


def class_of_exit(status: int) -> type[ElasticCTRError]:
    return _BY_EXIT_STATUS.get(status, InternalError)


def class_of_http(status: int) -> type[ElasticCTRError]:
    """Of an answer from 400. An unknown status of the 400s blames the request, any other the server."""
    return _BY_HTTP_STATUS.get(status, DataError if 400 <= status < 500 else InternalError)
