"""Errors in HTTP answers: how a server writes one, and how whoever asked reads it back."""

from __future__ import annotations

import json

from elasticctr.errors import ElasticCTRError, InternalError, Unavailable, class_of_code, class_of_http

_LONGEST_PAUSE_S = 3600.0
_MAX_SHOWN = 200  # bytes of an answer that is not in our shape


def retry_after(error: ElasticCTRError) -> dict[str, str]:
    """The header that says when to try again, if the error is one to try again after."""
    if not isinstance(error, Unavailable):
        return {}
    return {"Retry-After": str(max(1, round(error.retry_after_s or 1)))}


def read_error(status: int, body: bytes, retry_after: str, where: str) -> ElasticCTRError:
    """The error another process answered with, as it was raised there. `retry_after`: the header, or nothing."""
    code, message = "", body[:_MAX_SHOWN].decode(errors="replace").strip() or f"status {status}"
    try:
        error = json.loads(body)["error"]
        if isinstance(error, dict):
            code, message = str(error["code"]), str(error["message"])
        else:
            message = str(error)  # KServe's shape
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    kind = class_of_code(code) or class_of_http(status)
    text = f"{where}: {message}"
    return Unavailable(text, _seconds(retry_after)) if kind is Unavailable else kind(text)


def error_named(text: str, where: str) -> ElasticCTRError:
    """The error whose text starts with its name, as in 'Corruption: …'; without one, an InternalError."""
    name, _, message = text.partition(": ")
    kind = class_of_code(name)
    if kind is None:
        return InternalError(f"{where}: {text or 'failed without a reason'}")
    return kind(f"{where}: {message}")


def _seconds(text: str) -> float | None:
    """None also for a date, which no server of ours sends."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return min(seconds, _LONGEST_PAUSE_S) if seconds >= 0 else None
