"""The load generator keeps order, counts latency from the due time, and counts errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.serve.client.fake_server import Behaviour, FakeServer

from elasticctr.errors import DataError
from elasticctr.serve.client import PredictClient
from elasticctr.serve.client.files import Asked
from elasticctr.serve.client.load import Load


def requests(count: int) -> Iterator[Asked]:
    return (Asked(2, lines=[f"{i}", "x"]) for i in range(count))


def test_scores_are_in_the_order_of_requests() -> None:
    with FakeServer() as server, PredictClient(server.url, model="ctr", timeout_s=60) as client:
        load = Load(client, requests(20))
        load.run(threads=4)
    assert load.counts == [2] * 20
    assert sorted(load.scores) == list(range(20))
    assert (load.tally.requests, load.tally.samples, load.tally.found, load.tally.asked) == (20, 40, 500, 520)


def test_latencies_count_from_when_a_request_was_due() -> None:
    """The first request stalls its only thread; those behind it were due long before they could be sent."""
    with FakeServer(("answer", 0.5)) as server, PredictClient(server.url, model="ctr", timeout_s=60) as client:
        load = Load(client, requests(5), rate=100)
        load.run(threads=1)
    assert all(latency >= 0.45 for latency in load.tally.latencies_s)
    assert load.tally.percentiles()["p50_ms"] >= 450


def test_errors_are_counted_and_reading_goes_on() -> None:
    bad: Behaviour = ("status", (400, {"error": {"code": "DataError", "message": "no"}}, {}))
    with FakeServer("answer", bad) as server, PredictClient(server.url, model="ctr", timeout_s=60) as client:
        load = Load(client, requests(4))
        load.run(threads=1)
    assert dict(load.tally.errors) == {"DataError": 1}
    assert load.scores[1] is None and load.scores[2] is not None
    assert str(load.tally.first_error).endswith("no")


def test_a_file_that_cannot_be_read_ends_the_run() -> None:
    def broken() -> Iterator[Asked]:
        yield from requests(2)
        raise DataError("not UTF-8", "x.txt", 3)

    with FakeServer() as server, PredictClient(server.url, model="ctr", timeout_s=60) as client:
        load = Load(client, broken())
        with pytest.raises(DataError, match=r"x\.txt:3"):
            load.run(threads=3)
