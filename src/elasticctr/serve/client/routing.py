"""Chooses the variant of a call and the endpoint of an attempt, and ejects failing endpoints. Thread-safe."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from elasticctr import _native
from elasticctr.serve.client.http1 import format_head
from elasticctr.serve.client.settings import EndpointSettings, PredictClientSettings, VariantSettings, parse_url


class Endpoint:
    """A server and its state. Changed only by its Router; `idle` belongs to the client."""

    def __init__(self, settings: EndpointSettings, token: str | None) -> None:
        self.url = settings.url
        self.weight = settings.weight
        self.address = parse_url(settings.url)
        self.idle: deque[Any] = deque()  # connections
        self.in_flight = 0
        self.failures = 0  # in a row
        self.ejections = 0  # in a row
        self.ejected_until_s = 0.0
        self.resting_until_s = 0.0  # Retry-After: no requests before this time
        self.credit = 0.0  # of smooth weighted round robin
        self._token = token
        self._heads: dict[str, bytes] = {}

    def head(self, path: str) -> bytes:
        head = self._heads.get(path)
        if head is None:
            if len(self._heads) > 1000:
                self._heads.clear()
            head = self._heads[path] = format_head(self.address.prefix + path, self.address.authority, self._token)
        return head


class Variant:
    def __init__(self, settings: VariantSettings, token: str | None) -> None:
        self.name = settings.name
        self.weight = settings.weight
        self.model = settings.model
        self.version = settings.version
        self.endpoints = [Endpoint(endpoint, token) for endpoint in settings.endpoints]


class Router:
    def __init__(
        self,
        settings: PredictClientSettings,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._draw = draw
        self._lock = threading.Lock()
        self._budget = 10.0
        self.variants = [Variant(variant, settings.token) for variant in settings.variants]
        self._total = sum(variant.weight for variant in self.variants)

    def choose_variant(self, key: str | None) -> Variant:
        """Chooses by weight: by the key's hash, so that a key keeps its variant, or at random without a key."""
        if len(self.variants) == 1:
            return self.variants[0]
        share = self._draw() if key is None else _native.xxh64(key.encode(), self._settings.seed) / 2.0**64
        at = share * self._total
        for variant in self.variants:
            if at < variant.weight:
                return variant
            at -= variant.weight
        return next(variant for variant in reversed(self.variants) if variant.weight > 0)

    def choose_endpoint(self, variant: Variant, tried: Collection[Endpoint]) -> Endpoint:
        """Chooses by weight among endpoints not yet tried, not ejected and not resting, or the next best."""
        with self._lock:
            now_s = self._clock()
            usable = [e for e in variant.endpoints if e.weight > 0]
            fresh = [e for e in usable if e not in tried]
            well = [e for e in fresh if e.ejected_until_s <= now_s and e.resting_until_s <= now_s]
            if not well:
                # An ejected endpoint is a better guess than one that has just failed this call.
                rank = [e for e in fresh if e.resting_until_s <= now_s] or usable
                soonest = min(max(e.resting_until_s, e.ejected_until_s) for e in rank)
                well = [e for e in rank if max(e.resting_until_s, e.ejected_until_s) == soonest]
            chosen = self._balance(well)
            chosen.in_flight += 1
            return chosen

    def has_other(self, variant: Variant, tried: Collection[Endpoint]) -> bool:
        """Whether a healthy endpoint has not been tried."""
        now_s = self._clock()
        others = (e for e in variant.endpoints if e not in tried and e.weight > 0)
        return any(max(e.ejected_until_s, e.resting_until_s) <= now_s for e in others)

    def _balance(self, endpoints: list[Endpoint]) -> Endpoint:
        if len(endpoints) == 1:
            return endpoints[0]
        if self._settings.balancer == "random":
            return random.choices(endpoints, [e.weight for e in endpoints])[0]
        if self._settings.balancer == "least_loaded":
            least = min(e.in_flight / e.weight for e in endpoints)
            endpoints = [e for e in endpoints if e.in_flight / e.weight == least]
        for endpoint in endpoints:
            endpoint.credit += endpoint.weight
        chosen = max(endpoints, key=lambda e: e.credit)
        chosen.credit -= sum(e.weight for e in endpoints)
        return chosen

    def end(self, endpoint: Endpoint, ok: bool | None) -> None:
        """Ends an attempt: answered, failed, or (None) abandoned through no fault of the endpoint."""
        with self._lock:
            endpoint.in_flight -= 1
            if ok:
                endpoint.failures = endpoint.ejections = 0
            elif ok is False and endpoint.ejected_until_s <= self._clock():
                endpoint.failures += 1
                # An endpoint returning from ejection must succeed at its first attempt.
                if endpoint.failures >= self._settings.eject_after or endpoint.ejections:
                    pause_ms = min(
                        self._settings.eject_ms * 2 ** min(endpoint.ejections, 30), self._settings.eject_max_ms
                    )
                    endpoint.ejected_until_s = self._clock() + pause_ms / 1000
                    endpoint.ejections += 1
                    endpoint.failures = 0

    def rest(self, endpoint: Endpoint, seconds: float) -> None:
        """Leaves the endpoint alone for the time of its Retry-After."""
        with self._lock:
            endpoint.resting_until_s = max(endpoint.resting_until_s, self._clock() + seconds)

    def rest_of(self, variant: Variant) -> float:
        """Seconds until an endpoint of the variant may be asked again; 0: now."""
        now_s = self._clock()
        return max(0.0, min(e.resting_until_s for e in variant.endpoints if e.weight > 0) - now_s)

    def earn(self) -> None:
        """Adds a call's share to the retry budget."""
        with self._lock:
            self._budget = min(self._budget + self._settings.retry_budget, 100.0)

    def spend(self) -> bool:
        """Whether the budget allows one more attempt; if so, spends it."""
        with self._lock:
            if self._budget < 1:
                return False
            self._budget -= 1
            return True
