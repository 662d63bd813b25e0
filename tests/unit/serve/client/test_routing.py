"""Choices that depend on time and chance, with both under control."""

from __future__ import annotations

from collections import Counter

import pytest

from elasticctr.serve.client import EndpointSettings, PredictClientSettings, VariantSettings
from elasticctr.serve.client.routing import Endpoint, Router


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_router(clock: Clock, weights: tuple[float, ...] = (1, 1, 1), **settings: object) -> Router:
    endpoints = tuple(EndpointSettings(f"h{i}:1", weight) for i, weight in enumerate(weights))
    variants = (VariantSettings("", endpoints),)
    return Router(PredictClientSettings(variants=variants, eject_after=2, eject_ms=1000, **settings), clock)  # type: ignore[arg-type]


def choose(router: Router, tried: list[Endpoint] | None = None) -> Endpoint:
    return router.choose_endpoint(router.variants[0], tried or [])


def fail(router: Router, endpoint: Endpoint, times: int = 1) -> None:
    for _ in range(times):
        endpoint.in_flight += 1
        router.end(endpoint, False)


def test_round_robin_is_smooth(clock: Clock) -> None:
    router = make_router(clock, (2, 1, 1))
    order = "".join(choose(router).address.host[1] for _ in range(8))
    assert order == "01200120"


def test_least_loaded(clock: Clock) -> None:
    router = make_router(clock, balancer="least_loaded")
    chosen = [choose(router) for _ in range(3)]
    assert len(set(chosen)) == 3
    router.end(chosen[1], True)
    assert choose(router) is chosen[1]


def test_random_respects_weights(clock: Clock) -> None:
    router = make_router(clock, (9, 1), balancer="random")
    counts = Counter(choose(router).address.host for _ in range(1000))
    assert counts["h0"] > 800


def test_weight_zero_is_never_asked(clock: Clock) -> None:
    router = make_router(clock, (1, 0))
    assert {choose(router).address.host for _ in range(5)} == {"h0"}


def test_retry_goes_elsewhere(clock: Clock) -> None:
    router = make_router(clock)
    first = choose(router)
    second = choose(router, [first])
    assert choose(router, [first, second]) not in (first, second)
    assert choose(router, router.variants[0].endpoints) in router.variants[0].endpoints


def test_ejection_doubles_and_ends_with_an_answer(clock: Clock) -> None:
    router = make_router(clock)
    bad, *good = router.variants[0].endpoints
    fail(router, bad, 2)
    assert {choose(router) for _ in range(6)} == set(good)
    clock.now_s += 1.01
    assert bad in {choose(router) for _ in range(3)}
    fail(router, bad)  # the probe
    clock.now_s += 1.01
    assert {choose(router) for _ in range(6)} == set(good)
    clock.now_s += 1.01
    assert bad in {choose(router) for _ in range(3)}
    router.end(bad, True)
    fail(router, bad)
    assert bad in {choose(router) for _ in range(3)}


def test_failures_of_one_moment_eject_once(clock: Clock) -> None:
    router = make_router(clock)
    bad = router.variants[0].endpoints[0]
    fail(router, bad, 50)
    assert bad.ejected_until_s == clock.now_s + 1.0


def test_all_ejected_are_asked_all_the_same(clock: Clock) -> None:
    router = make_router(clock)
    for endpoint in router.variants[0].endpoints:
        fail(router, endpoint, 2)
    assert {choose(router) for _ in range(6)} == set(router.variants[0].endpoints)


def test_rest(clock: Clock) -> None:
    router = make_router(clock, (1, 1))
    one, two = router.variants[0].endpoints
    router.rest(one, 2.0)
    assert {choose(router) for _ in range(4)} == {two}
    assert router.rest_of(router.variants[0]) == 0
    router.rest(two, 1.0)
    assert router.rest_of(router.variants[0]) == 1.0
    assert not router.has_other(router.variants[0], [])


def test_budget(clock: Clock) -> None:
    router = make_router(clock, retry_budget=0.5)
    assert sum(router.spend() for _ in range(20)) == 10
    for _ in range(4):
        router.earn()
    assert sum(router.spend() for _ in range(20)) == 2


def test_variants_share_by_weight(clock: Clock) -> None:
    variants = tuple(VariantSettings(n, (EndpointSettings("h:1"),), w) for n, w in (("a", 1.0), ("b", 3.0), ("c", 0.0)))
    settings = PredictClientSettings(variants=variants, sticky="u")
    router = Router(settings, clock)
    by_key = {str(i): router.choose_variant(str(i)).name for i in range(4000)}
    assert Counter(by_key.values())["a"] == pytest.approx(1000, abs=120)
    assert "c" not in by_key.values()
    assert by_key == {key: Router(settings, clock).choose_variant(key).name for key in by_key}
    other = Router(PredictClientSettings(variants=variants, sticky="u", seed=1), clock)
    assert by_key != {key: other.choose_variant(key).name for key in by_key}
    assert Router(settings, clock, draw=lambda: 0.9999999).choose_variant(None).name == "b"
