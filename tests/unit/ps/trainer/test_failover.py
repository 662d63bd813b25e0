"""A trainer's patience: new addresses are taken up, reloads interrupt, and there is an end to waiting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from tests.unit.ps.scripted import Scripted, scripted

from elasticctr.errors import Unavailable
from elasticctr.ps.coordinator_client import CoordinatorClient
from elasticctr.ps.trainer.client import PsClient
from elasticctr.ps.trainer.failover import CoordinatedFailover, Interrupted
from elasticctr.ps.trainer.reporting import Reporter


class Links:
    """As much of a client as failover uses: how its connections are, and where they lead."""

    def __init__(self) -> None:
        self.states = [{"address": f"h:{n}", "is_ready": True, "trouble": ""} for n in range(2)]
        self.addresses: dict[int, str] = {}

    def stats(self) -> dict[str, Any]:
        return {"pservers": self.states}

    def set_address(self, shard: int, address: str, incarnation: int) -> None:
        self.addresses[shard] = address
        self.states[shard] = {"address": address, "is_ready": True, "trouble": ""}


@pytest.fixture
def coordinator() -> Iterator[Scripted]:
    with scripted() as server:
        shards = [{"shard": n, "address": f"new:{n}", "standby": None, "is_ready": True} for n in range(2)]
        server.answers["/v1/pservers"] = (200, {"shards": shards, "generation": 5})
        yield server


@pytest.fixture
def reporter(coordinator: Scripted) -> Iterator[Reporter]:
    made = Reporter(CoordinatorClient(coordinator.url), 7, dict, wait_s=20.0, beat_s=60.0)
    yield made
    made.close()


def make(coordinator: Scripted, reporter: Reporter, links: Links, **more: Any) -> CoordinatedFailover:
    settings: dict[str, Any] = {"wait_s": 20.0, "is_ending": lambda: False} | more
    failover = CoordinatedFailover(CoordinatorClient(coordinator.url), reporter, **settings)
    failover.client = cast(PsClient, links)
    return failover


def test_a_call_is_repeated_at_the_new_address_and_the_coordinator_told(
    coordinator: Scripted, reporter: Reporter
) -> None:
    links = Links()
    links.states[1] = {"address": "h:1", "is_ready": False, "trouble": "connection refused"}
    failover = make(coordinator, reporter, links)

    def call() -> str:
        if links.addresses.get(1) != "new:1":
            raise Unavailable("h:1: connection refused")
        return "rows"

    assert failover.retry(call) == "rows"
    assert reporter.drain(20)
    told = [body["detail"] for path, body, _ in coordinator.told if path == "/v1/report"]
    assert told == ["1"]  # the shard, once


def test_a_reload_interrupts_what_is_waited_for(coordinator: Scripted, reporter: Reporter) -> None:
    failover = make(coordinator, reporter, Links())
    reporter.take_answer({"order": "reload"})

    def call() -> None:
        raise Unavailable("gone")

    with pytest.raises(Interrupted):
        failover.retry(call)
    with pytest.raises(Interrupted):
        failover.poll(0.1)
    reporter.forget()
    failover.poll(0.1)


def test_there_is_an_end_to_waiting(coordinator: Scripted, reporter: Reporter) -> None:
    links = Links()
    failover = make(coordinator, reporter, links, wait_s=5.0)
    failover.poll(4.9)
    with pytest.raises(Unavailable, match="5 s"):
        failover.poll(5.1)
    ending = make(coordinator, reporter, links, wait_s=300.0, is_ending=lambda: True)
    with pytest.raises(Unavailable):
        ending.poll(11.0)


def test_a_new_generation_is_followed_without_trouble(coordinator: Scripted, reporter: Reporter) -> None:
    links = Links()
    failover = make(coordinator, reporter, links)
    failover.follow()
    assert links.addresses == {0: "new:0", 1: "new:1"}
    links.addresses.clear()
    failover.follow()  # the first answer said which generation it was of
    failover.follow()
    assert len([path for path, _, _ in coordinator.told if path == "/v1/pservers"]) <= 2


def test_other_errors_pass(coordinator: Scripted, reporter: Reporter) -> None:
    def call() -> None:
        raise ValueError("not a matter of pservers")

    with pytest.raises(ValueError, match="not a matter"):
        make(coordinator, reporter, Links()).retry(call)
