"""Both clients against servers that misbehave: what is retried, what is not, and how long anything takes."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cluster.certificate import make_certificate
from tests.unit.serve.client.fake_server import Behaviour, FakeServer

from elasticctr.errors import (
    ConfigError,
    DataError,
    DeadlineExceeded,
    FailedPrecondition,
    InternalError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from elasticctr.serve.client import (
    AsyncPredictClient,
    EndpointSettings,
    PredictClient,
    PredictClientSettings,
    VariantSettings,
)

SAMPLE = {"C1": "a"}


class InThread:
    """AsyncPredictClient with the interface of PredictClient, on its own event loop."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._client = AsyncPredictClient(*arguments, **named)
        except Exception:
            self._end()
            raise
        self._router = self._client._router

    def predict(self, *arguments: Any, **named: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(self._client.predict(*arguments, **named), self._loop).result(90)

    def __enter__(self) -> InThread:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(90)
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(params=[PredictClient, InThread], ids=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Any:
    """Patient by default: the test machine may be busy."""
    return lambda *arguments, **named: request.param(*arguments, **{"timeout_s": 60, "connect_s": 60} | named)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


def test_answer_is_taken_apart(make: Any, server: FakeServer) -> None:
    with make(server.url, model="ctr", token="secret") as client:
        got = client.predict([SAMPLE, {"C1": ["b", "c"]}], id="r1", fields={"user_id": 7})
    np.testing.assert_array_equal(got.scores, np.array([0.01, 0.02], dtype=np.float32))
    assert got.scores.dtype == np.float32
    assert (got.model, got.version, got.variant, got.client_variant, got.id) == ("ctr", 1, "live", "", "made")
    assert (got.coverage.asked, got.coverage.found, got.coverage.is_degraded) == (26, 25, False)
    assert (got.attempts, got.endpoint) == (1, server.url)
    assert 0 < got.latency_s < 60
    (request,) = server.requests
    assert request.pop("timeout_ms") in range(20_000, 60_001)
    assert request == {"samples": [SAMPLE, {"C1": ["b", "c"]}], "user_id": 7}
    assert "POST /v1/models/ctr:predict HTTP/1.1" in server.heads[0]
    assert "Authorization: Bearer secret\r\n" in server.heads[0]
    assert "X-Request-Id: r1\r\n" in server.heads[0]


def test_every_kind_of_request(make: Any, server: FakeServer) -> None:
    big = 2**64 - 1
    with make(server.url, model="ctr") as client:
        client.predict(user={"C1": np.uint64(big)}, candidates=[{"C2": np.array([1, 2])}, {}], values="feasigns")
        client.predict(lines="1\t2\n0\t3\n", format="criteo", version=3)
        client.predict(SAMPLE, model="other/model", ignore_unknown=True)
    for request in server.requests:
        del request["timeout_ms"]
    assert server.requests == [
        {"user": {"C1": big}, "candidates": [{"C2": [1, 2]}, {}], "values": "feasigns"},
        {"lines": ["1\t2", "0\t3"], "format": "criteo"},
        {"samples": [SAMPLE], "ignore_unknown": True},
    ]
    paths = [head.split()[1] for head in server.heads]
    assert paths == [
        "/v1/models/ctr:predict",
        "/v1/models/ctr/versions/3:predict",
        "/v1/models/other%2Fmodel:predict",
    ]


def test_connection_is_kept(make: Any, server: FakeServer) -> None:
    with make(server.url, model="ctr") as client:
        for _ in range(5):
            client.predict(SAMPLE)
    assert (len(server.requests), server.connections) == (5, 1)


@pytest.mark.parametrize("how", ["close", "stale"])
def test_a_closed_connection_is_reopened_without_an_attempt(make: Any, how: str) -> None:
    with FakeServer(how, how) as server, make(server.url, model="ctr", retries=0) as client:
        attempts = []
        for _ in range(3):
            attempts.append(client.predict(SAMPLE).attempts)
            time.sleep(0.02)
    assert attempts == [1, 1, 1]
    assert server.connections == 3


def test_chunked_answer(make: Any) -> None:
    with FakeServer("chunked", "chunked") as server, make(server.url, model="ctr") as client:
        assert client.predict(SAMPLE).scores.tolist() == [pytest.approx(0.01)]
        client.predict(SAMPLE)
    assert server.connections == 1


@pytest.mark.parametrize("trouble", ["cut", "half", "garbage", ("status", (503, {}, {})), ("status", (502, {}, {}))])
def test_trouble_is_retried_elsewhere(make: Any, trouble: Any) -> None:
    with FakeServer(trouble) as bad, FakeServer() as good, make([bad.url, good.url], model="ctr") as client:
        got = client.predict(SAMPLE)
    assert (got.attempts, got.endpoint) == (2, good.url)


def test_refused_connection_is_retried_elsewhere(make: Any, server: FakeServer) -> None:
    with FakeServer() as dead:
        pass
    with make([dead.url, server.url], model="ctr") as client:
        endpoints = {client.predict(SAMPLE).endpoint for _ in range(10)}
    assert endpoints == {server.url}


def test_nobody_answers(make: Any) -> None:
    with FakeServer() as dead:
        pass
    with make(dead.url, model="ctr", retries=2) as client, pytest.raises(Unavailable, match="refused the connection"):
        client.predict(SAMPLE)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"code": "DataError", "message": "unknown slot 'C9'"}}, DataError),
        (400, {"error": {"code": "ConfigError", "message": "unknown format 'x'"}}, ConfigError),
        (401, {"error": {"code": "Unauthorized", "message": "no token"}}, Unauthorized),
        (404, {"error": {"code": "NotFound", "message": "no model"}}, NotFound),
        (412, {"error": {"code": "FailedPrecondition", "message": "paused"}}, FailedPrecondition),
        (413, {}, DataError),
        (500, {"error": "plain"}, InternalError),
        (504, {"error": {"code": "DeadlineExceeded", "message": "late"}}, DeadlineExceeded),
        (302, {}, InternalError),
    ],
)
def test_errors_of_the_server_are_final(make: Any, status: int, body: Any, kind: type[Exception]) -> None:
    with FakeServer(("status", (status, body, {}))) as server, make([server.url], model="ctr") as client:
        with pytest.raises(kind) as raised:
            client.predict(SAMPLE)
        assert len(server.requests) == 1
        message = body.get("error", "")
        assert (message["message"] if isinstance(message, dict) else message) in str(raised.value)
        assert client.predict(SAMPLE).version == 1


def test_retry_after_is_honoured(make: Any) -> None:
    busy: Behaviour = (
        "status",
        (429, {"error": {"code": "Unavailable", "message": "too many"}}, {"Retry-After": "0.2"}),
    )
    with FakeServer(busy) as server, make(server.url, model="ctr") as client:
        got = client.predict(SAMPLE)
    assert got.attempts == 2
    assert got.latency_s >= 0.2


def test_retry_after_beyond_the_deadline_ends_the_call_at_once(make: Any) -> None:
    busy = ("status", (429, {"error": {"code": "Unavailable", "message": "too many"}}, {"Retry-After": "3000"}))
    with FakeServer(busy) as server, make(server.url, model="ctr") as client:
        started = time.monotonic()
        with pytest.raises(Unavailable, match="too many") as raised:
            client.predict(SAMPLE)
    assert time.monotonic() - started < 50
    assert raised.value.retry_after_s == 3000


def test_resting_endpoint_is_left_alone(make: Any) -> None:
    busy: Behaviour = ("status", (503, {}, {"Retry-After": "30"}))
    with FakeServer(busy) as one, FakeServer() as two, make([one.url, two.url], model="ctr") as client:
        for _ in range(6):
            client.predict(SAMPLE)
    assert (len(one.requests), len(two.requests)) == (1, 6)


def test_deadline(make: Any) -> None:
    with FakeServer("hang", "hang") as server, make(server.url, model="ctr") as client:
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="no answer within"):
            client.predict(SAMPLE, timeout_s=0.2)
        assert 0.19 <= time.monotonic() - started < 60
        assert server.requests[0]["timeout_ms"] <= 200
        server.script.clear()
        assert client.predict(SAMPLE).version == 1


def test_hedge(make: Any) -> None:
    with (
        FakeServer("hang") as slow,
        FakeServer(version=2) as fast,
        make([slow.url, fast.url], model="ctr", hedge_s=0.05) as client,
    ):
        got = client.predict(SAMPLE)
        assert (got.version, got.attempts) == (2, 2)
        assert got.latency_s >= 0.05
        assert all(e.in_flight == 0 for v in client._router.variants for e in v.endpoints)


def test_hedge_waits_for_the_first_too(make: Any) -> None:
    with (
        FakeServer(("answer", 0.5)) as slow,
        FakeServer("hang") as hanging,
        make([slow.url, hanging.url], model="ctr", hedge_s=0.05) as client,
    ):
        got = client.predict(SAMPLE)
        assert (got.endpoint, got.attempts) == (slow.url, 2)


def test_failing_endpoint_is_ejected(make: Any) -> None:
    with FakeServer(*[("status", (503, {}, {}))] * 100) as bad, FakeServer() as good:
        settings = PredictClientSettings(
            variants=(VariantSettings("", (EndpointSettings(bad.url), EndpointSettings(good.url))),),
            model="ctr",
            backoff_ms=0,
            eject_after=3,
            eject_ms=60_000,
            eject_max_ms=60_000,
            retry_budget=1.0,
        )
        with make(settings) as client:
            for _ in range(20):
                client.predict(SAMPLE)
            assert [e.in_flight for e in client._router.variants[0].endpoints] == [0, 0]
    assert (len(bad.requests), len(good.requests)) == (3, 20)


def test_variants_by_weight_and_sticky(make: Any) -> None:
    with FakeServer(version=1) as a, FakeServer(version=2) as b:
        variants = [
            VariantSettings("a", (EndpointSettings(a.url),), weight=3),
            VariantSettings("b", (EndpointSettings(b.url),), weight=1),
        ]
        with make(variants=variants, model="ctr", sticky="user_id") as client:
            by_user = {u: client.predict(SAMPLE, fields={"user_id": u}).client_variant for u in range(300)}
            again = {u: client.predict(SAMPLE, key=str(u)).client_variant for u in range(0, 300, 10)}
    assert again == {u: by_user[u] for u in again}
    shares = Counter(by_user.values())
    assert 185 <= shares["a"] <= 260
    assert all(request["user_id"] in range(300) for request in a.requests if "user_id" in request)


def test_weights_of_endpoints(make: Any) -> None:
    with FakeServer() as one, FakeServer() as two:
        endpoints = [EndpointSettings(one.url, 3), EndpointSettings(two.url, 1)]
        with make(endpoints, model="ctr") as client:
            for _ in range(20):
                client.predict(SAMPLE)
    assert (len(one.requests), len(two.requests)) == (15, 5)


def test_tls(make: Any, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with FakeServer(tls=context) as server:
        with make(server.url, model="ctr", ca_file=str(certificate)) as client:
            for _ in range(3):
                assert client.predict(lines=["x" * 1000] * 2000).scores.shape == (2000,)
        assert server.connections == 1
        with (
            make(server.url, model="ctr", retries=0) as client,
            pytest.raises(Unavailable, match="TLS failed"),
        ):
            client.predict(SAMPLE)


def test_many_threads_share_a_client(server: FakeServer) -> None:
    failed: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(50):
                client.predict(SAMPLE)
        except Exception as e:
            failed.append(e)

    with PredictClient(server.url, model="ctr", timeout_s=60) as client:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client._router.variants[0].endpoints[0].in_flight == 0
    assert not failed
    assert len(server.requests) == 400
    assert server.connections <= 8


def test_many_tasks_share_a_client(server: FakeServer) -> None:
    async def work() -> int:
        async with AsyncPredictClient(server.url, model="ctr", timeout_s=60) as client:
            got = await asyncio.gather(*(client.predict(SAMPLE) for _ in range(50)))
            return sum(p.version for p in got)

    assert asyncio.run(work()) == 50


def test_an_answer_that_is_not_a_prediction(make: Any) -> None:
    with (
        FakeServer(("status", (200, {"scores": []}, {}))) as server,
        make(server.url, model="ctr") as client,
        pytest.raises(InternalError, match="not a prediction"),
    ):
        client.predict(SAMPLE)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({}, "one of samples"),
        ({"samples": [], "lines": []}, "one of samples"),
        ({"user": {}, "samples": []}, "needs candidates"),
        ({"samples": [], "fields": {"lines": 1}}, "cannot be one of fields"),
        ({"samples": [], "timeout_s": 0}, "timeout_s"),
        ({"samples": [], "id": "a b"}, "id must be"),
    ],
)
def test_wrong_calls(make: Any, server: FakeServer, named: dict[str, Any], message: str) -> None:
    with make(server.url, model="ctr") as client, pytest.raises(ConfigError, match=message):
        client.predict(**named)
    assert not server.requests


def test_wrong_values(make: Any, server: FakeServer) -> None:
    with make(server.url) as client:
        with pytest.raises(ConfigError, match="no model given"):
            client.predict(SAMPLE)
        with pytest.raises(DataError, match="cannot be written as JSON"):
            client.predict([{"I1": float("nan")}], model="ctr")
        with pytest.raises(DataError, match="cannot be written as JSON"):
            client.predict([{"I1": object()}], model="ctr")


def test_closed_client(server: FakeServer) -> None:
    client = PredictClient(server.url, model="ctr")
    client.close()
    with pytest.raises(FailedPrecondition, match="closed"):
        client.predict(SAMPLE)
