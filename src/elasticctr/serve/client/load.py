"""Sends many requests at once and counts the results, for `elasticctr call`.

With a rate, requests are due at fixed times and latencies are measured from then, so that a stalling server does not
look fast.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elasticctr.errors import ElasticCTRError
from elasticctr.serve.client.client import PredictClient
from elasticctr.serve.client.files import Asked
from elasticctr.serve.client.prediction import Prediction

PERCENTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p99_ms": 99.0, "p99_9_ms": 99.9, "max_ms": 100.0}


@dataclass(slots=True)
class LoadTally:
    """The results of the requests so far."""

    requests: int = 0
    samples: int = 0
    asked: int = 0  # rows
    found: int = 0
    degraded: int = 0  # requests
    retried: int = 0  # attempts beyond the first
    errors: Counter[str] = field(default_factory=Counter)  # by code
    versions: Counter[str] = field(default_factory=Counter)
    variants: Counter[str] = field(default_factory=Counter)
    endpoints: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    first_error: ElasticCTRError | None = None
    latencies_s: list[float] = field(default_factory=list)
    labels: tuple[str, ...] = ()

    def add(self, prediction: Prediction, latency_s: float) -> None:
        self.latencies_s.append(latency_s)
        self.samples += len(prediction.scores)
        self.asked += prediction.coverage.asked
        self.found += prediction.coverage.found
        self.degraded += prediction.coverage.is_degraded
        self.retried += prediction.attempts - 1
        self.reasons.update(prediction.coverage.reasons)
        self.versions[f"{prediction.model} {prediction.version}"] += 1
        client = f"{prediction.client_variant}/" if prediction.client_variant else ""
        self.variants[client + prediction.variant] += 1
        self.endpoints[prediction.endpoint] += 1
        self.labels = prediction.labels

    def percentiles(self) -> dict[str, float]:
        """Milliseconds of the requests that were answered."""
        if not self.latencies_s:
            return {}
        found = np.percentile(np.array(self.latencies_s) * 1000, list(PERCENTILES.values()), method="higher")
        return dict(zip(PERCENTILES, found.tolist(), strict=True))


class Load:
    """One run. `scores` holds each request's scores by number, None if it failed."""

    def __init__(
        self,
        client: PredictClient,
        requests: Iterator[Asked],
        *,
        key: str | None = None,
        rate: float | None = None,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.tally = LoadTally()
        self.scores: dict[int, NDArray[np.float32] | None] = {}
        self.counts: list[int] = []  # samples of each request
        self.seconds = 0.0
        self._client = client
        self._requests = requests
        self._key = key
        self._rate = rate
        self._advance = advance
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._failure: BaseException | None = None
        self._started_s = 0.0

    def run(self, threads: int) -> None:
        """Sends all requests. Errors of reading them are raised; errors of servers are counted."""
        self._started_s = time.monotonic()
        workers = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for worker in workers:
            worker.start()
        try:
            for worker in workers:
                while worker.is_alive():
                    worker.join(0.1)
                    with self._lock:
                        done = self.tally.requests
                    self._advance(done)
        except KeyboardInterrupt as e:
            self._failure = e
            for worker in workers:
                worker.join(self._client.settings.timeout_ms / 1000 + 1)
        self.seconds = time.monotonic() - self._started_s
        if self._failure is not None and not isinstance(self._failure, KeyboardInterrupt):
            raise self._failure

    def _next(self) -> tuple[int, Asked] | None:
        with self._reading:
            if self._failure is not None:
                return None
            try:
                asked = next(self._requests, None)
            except BaseException as e:  # from reading the file; raised by `run`
                self._failure = e
                return None
            if asked is None:
                return None
            self.counts.append(asked.count)
            return len(self.counts) - 1, asked

    def _work(self) -> None:
        while (got := self._next()) is not None:
            number, asked = got
            due_s = time.monotonic()
            if self._rate is not None:
                due_s = self._started_s + number / self._rate
                time.sleep(max(0.0, due_s - time.monotonic()))
            try:
                prediction = self._client.predict(
                    asked.samples,
                    lines=asked.lines,
                    format=asked.options.get("format"),
                    values=asked.options.get("values"),
                    ignore_unknown=asked.options.get("ignore_unknown"),
                    key=self._key,
                )
            except ElasticCTRError as e:
                with self._lock:
                    self.tally.requests += 1
                    self.tally.errors[e.code] += 1
                    self.tally.first_error = self.tally.first_error or e
                    self.scores[number] = None
                continue
            with self._lock:
                self.tally.requests += 1
                self.tally.add(prediction, time.monotonic() - due_s)
                self.scores[number] = prediction.scores
