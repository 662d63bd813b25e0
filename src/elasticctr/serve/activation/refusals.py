"""Versions that could not be served, why, and when to try them again."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from elasticctr.errors import DeadlineExceeded, ElasticCTRError, InternalError, NotFound, Unavailable

# Errors that may pass without a new version: files still arriving, a full machine or disk.
_TRANSIENT = (Unavailable, DeadlineExceeded, NotFound, InternalError)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_KEPT = 16


@dataclass(frozen=True, slots=True)
class Refusal:
    version: int
    code: str
    reason: str
    time: float  # unix seconds of the last attempt
    attempts: int
    retry_at: float | None  # unix seconds; None: once something changed
    cause: str  # the announcement that caused the attempt


class Refusals:
    """The refusals of one model. The caller locks."""

    def __init__(self) -> None:
        self._found: dict[int, Refusal] = {}
        self.total = 0

    def add(self, version: int, error: ElasticCTRError, cause: str) -> Refusal:
        before = self._found.pop(version, None)
        attempts = 1 + (before.attempts if before is not None and before.cause == cause else 0)
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(attempts - 1, 10), _LONGEST_PAUSE_S)
        retry_at = time.time() + pause_s if isinstance(error, _TRANSIENT) else None
        refusal = Refusal(version, error.code, str(error), time.time(), attempts, retry_at, cause)
        self._found[version] = refusal
        while len(self._found) > _KEPT:
            self._found.pop(next(iter(self._found)))
        self.total += 1
        return refusal

    def stands(self, version: int, cause: str) -> bool:
        """Whether a version must not be tried now."""
        found = self._found.get(version)
        if found is None or found.cause != cause:
            return False
        return found.retry_at is None or time.time() < found.retry_at

    def forgive(self, version: int) -> None:
        self._found.pop(version, None)

    def versions(self) -> set[int]:
        return set(self._found)

    def waits_s(self) -> list[float]:
        """Seconds until each retry."""
        retries = [refusal.retry_at for refusal in list(self._found.values())]
        return [max(0.0, retry_at - time.time()) for retry_at in retries if retry_at is not None]

    def status(self) -> list[dict[str, Any]]:
        return [
            {key: value for key, value in asdict(refusal).items() if key != "cause"} for refusal in self._found.values()
        ]
