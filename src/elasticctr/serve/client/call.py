"""One call: its deadline, its attempts and their results. Only decides; does not send or wait.

Predictions have no side effects, so an attempt without an answer may be repeated: after a refused or broken connection
and after 429, 502 and 503. Any other answer is final. No attempt is made that the deadline would end at once.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

from elasticctr.errors import DeadlineExceeded, ElasticCTRError, Unavailable
from elasticctr.net.answers import read_error
from elasticctr.serve.client.http1 import HttpResponse, TransportError
from elasticctr.serve.client.prediction import Prediction, parse_prediction
from elasticctr.serve.client.routing import Endpoint, Router, Variant
from elasticctr.serve.client.settings import PredictClientSettings

RETRYABLE = (429, 502, 503)


@dataclass(frozen=True, slots=True)
class Question:
    """A request, independent of the endpoint."""

    path: str
    body: bytes  # without its braces
    request_id: str | None
    variant: Variant


class Call:
    """Not thread-safe."""

    def __init__(self, router: Router, settings: PredictClientSettings, question: Question, timeout_s: float) -> None:
        self._router = router
        self._settings = settings
        self._question = question
        self._started_s = time.monotonic()
        self._tried: list[Endpoint] = []
        self._error: ElasticCTRError | None = None
        self.deadline_s = self._started_s + timeout_s
        router.earn()

    @property
    def left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def begin(self) -> Endpoint:
        """The endpoint of the next attempt."""
        endpoint = self._router.choose_endpoint(self._question.variant, self._tried)
        self._tried.append(endpoint)
        return endpoint

    def may_hedge(self) -> bool:
        """Whether another endpoint may be asked while one has not answered. Takes it from the retry budget."""
        others = self._router.has_other(self._question.variant, self._tried)
        return others and len(self._tried) <= self._settings.retries and self._router.spend()

    def bytes_for(self, endpoint: Endpoint) -> bytes:
        """The request, with the time left until its deadline."""
        question = self._question
        body = b'{"timeout_ms":%d,%s}' % (max(1, int(self.left_s * 1000)), question.body)
        extra = "" if question.request_id is None else f"X-Request-Id: {question.request_id}\r\n"
        return b"%s%sContent-Length: %d\r\n\r\n%s" % (endpoint.head(question.path), extra.encode(), len(body), body)

    def take(self, endpoint: Endpoint, response: HttpResponse) -> Prediction | None:
        """The prediction, or None if another attempt is worthwhile. Raises the error of a final answer."""
        if response.status == 200:
            self._router.end(endpoint, True)
            return parse_prediction(
                response,
                client_variant=self._question.variant.name,
                endpoint=endpoint.url,
                latency_s=time.monotonic() - self._started_s,
                attempts=len(self._tried),
            )
        later = response.headers.get(b"retry-after", b"").decode("latin-1")
        error = read_error(response.status, response.body, later, endpoint.url)
        # One with too much to do is well.
        self._router.end(endpoint, response.status not in (500, 502, 503))
        if response.status not in RETRYABLE:
            raise error
        if isinstance(error, Unavailable) and error.retry_after_s:
            self._router.rest(endpoint, error.retry_after_s)
        self._error = error
        return None

    def fail(self, endpoint: Endpoint, error: TransportError) -> None:
        self._router.end(endpoint, False)
        self._error = Unavailable(f"{endpoint.url}: {error}")

    def drop(self, endpoint: Endpoint) -> None:
        """Another endpoint was faster."""
        self._router.end(endpoint, None)

    def expire(self, endpoints: list[Endpoint]) -> DeadlineExceeded:
        """Returns the error for a deadline that passed while waiting for these."""
        for endpoint in endpoints:
            self._router.end(endpoint, False)
        waited_ms = (time.monotonic() - self._started_s) * 1000
        urls = ", ".join(e.url for e in endpoints) or (self._tried[-1].url if self._tried else "no endpoint")
        before = f" (before that: {self._error})" if self._error is not None else ""
        return DeadlineExceeded(f"{urls}: no answer within {waited_ms:.0f} ms{before}; allow more with timeout_s")

    def pause_s(self) -> float:
        """How long to wait before the next attempt. Raises the last error if no further attempt is worthwhile."""
        assert self._error is not None
        if len(self._tried) > self._settings.retries:
            raise self._error
        pause = self._settings.backoff_ms / 1000 * 2.0 ** (len(self._tried) - 1) * random.uniform(0.5, 1.0)
        pause = max(pause, self._router.rest_of(self._question.variant))
        if pause >= self.left_s or not self._router.spend():
            raise self._error
        return pause


def sticky_key(settings: PredictClientSettings, key: str | None, fields: dict[str, Any]) -> str | None:
    """The text that decides the variant of a call."""
    if key is not None:
        return key
    value = fields.get(settings.sticky) if settings.sticky is not None else None
    return None if value is None else str(value)
