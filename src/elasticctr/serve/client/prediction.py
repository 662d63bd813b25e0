"""A prediction as callers see it, and the JSON that asks for it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from elasticctr.errors import ConfigError, DataError, InternalError
from elasticctr.serve.client.http1 import HttpResponse

Sample = Mapping[str, Any]  # slot name → value or list of values


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of the requested rows were found, and why an answer is degraded."""

    asked: int
    found: int
    is_degraded: bool = False
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    scores: NDArray[np.float32]  # [n], or [n, labels] for a model with several labels
    labels: tuple[str, ...]  # of the columns of scores; empty: one label
    model: str
    version: int
    variant: str  # of the server
    client_variant: str  # from this client's settings; empty if it has only one
    id: str
    coverage: Coverage
    latency_s: float  # of the whole call, including retries
    endpoint: str
    attempts: int


def format_path(model: str | None, version: int | None) -> str:
    if not model:
        raise ConfigError("no model given; use predict(…, model=NAME), or model=NAME of the client")
    return f"/v1/models/{quote(model, safe='')}{'' if version is None else f'/versions/{version}'}:predict"


def format_body(
    samples: Iterable[Sample] | None,
    user: Sample | None,
    candidates: Iterable[Sample] | None,
    lines: str | Iterable[str] | None,
    options: Mapping[str, Any],
) -> bytes:
    """The body of a request without its braces, so that each attempt can put its deadline in front."""
    body: dict[str, Any] = {}
    if sum(given is not None for given in (samples, candidates, lines)) != 1:
        raise ConfigError("predict takes one of samples=…, user=… with candidates=…, or lines=…")
    if user is not None and candidates is None:
        raise ConfigError("user=… needs candidates=…, a list with what differs between them")
    if samples is not None:
        body["samples"] = [samples] if isinstance(samples, Mapping) else list(samples)
    elif candidates is not None:
        body |= {"user": user or {}, "candidates": list(candidates)}
    elif lines is not None:
        body["lines"] = lines.splitlines() if isinstance(lines, str) else list(lines)
    body |= {name: value for name, value in options.items() if value is not None}
    try:
        return _ENCODER.encode(body)[1:-1].encode()
    except (TypeError, ValueError) as e:
        raise DataError(f"the request cannot be written as JSON: {e}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"unsupported type {type(value).__name__}")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def parse_prediction(
    response: HttpResponse, *, client_variant: str, endpoint: str, latency_s: float, attempts: int
) -> Prediction:
    """Raises InternalError if the answer is not a prediction."""
    try:
        answer = json.loads(response.body)
        coverage = answer["coverage"]
        return Prediction(
            scores=np.array(answer["scores"], dtype=np.float32),
            labels=tuple(answer.get("labels", ())),
            model=answer["model"],
            version=int(answer["version"]),
            variant=answer["variant"],
            client_variant=client_variant,
            id=str(answer.get("id", "")),
            coverage=Coverage(
                coverage["asked"],
                coverage["found"],
                bool(coverage.get("degraded", answer.get("degraded", False))),
                tuple(coverage.get("reasons", answer.get("reasons", ()))),
            ),
            latency_s=latency_s,
            endpoint=endpoint,
            attempts=attempts,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        shown = response.body[:80].decode(errors="replace")
        raise InternalError(f"{endpoint}: its answer is not a prediction ({e!r}): {shown}") from None
