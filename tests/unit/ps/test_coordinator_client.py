"""Calls to a coordinator that is there, is not there yet, moves, or answers nonsense."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.unit.ps.scripted import Scripted, scripted

from elasticctr.errors import Corruption, DataError, FailedPrecondition, Unavailable
from elasticctr.ps.addresses import write_coordinator
from elasticctr.ps.coordinator_client import CoordinatorClient, pack_metrics, patiently, unpack_metrics
from elasticctr.train.metrics.metrics import Metrics


@pytest.fixture
def coordinator() -> Iterator[Scripted]:
    with scripted() as server:
        yield server


def test_calls_carry_id_and_token_and_remember_incarnation(coordinator: Scripted) -> None:
    coordinator.answers["/v1/beat"] = (200, {"order": "go", "incarnation": 3, "generation": 7, "era": 2})
    coordinator.answers["/v1/leave"] = (200, {"incarnation": 2})
    client = CoordinatorClient(coordinator.url, "secret")
    assert client.beat(5, {"rows": 1})["order"] == "go"
    client.leave(5, "over")
    assert (client.incarnation, client.generation, client.era) == (3, 7, 2)
    assert coordinator.told[0] == ("/v1/beat", {"id": 5, "stats": {"rows": 1}}, "Bearer secret")
    client.close()


def test_a_refusal_is_the_error_it_was(coordinator: Scripted) -> None:
    refusal = {"error": {"code": "FailedPrecondition", "message": "another build"}}
    coordinator.answers["/v1/join"] = (412, refusal)
    client = CoordinatorClient(coordinator.url)
    with pytest.raises(FailedPrecondition, match="another build"):
        client.join("trainer", "t", build="b", identity="i", host="h", pid=1)
    client.close()


def test_pservers_come_as_values_and_nonsense_is_told(coordinator: Scripted) -> None:
    client = CoordinatorClient(coordinator.url)
    shards = [{"shard": 0, "address": "h:1", "standby": None, "is_ready": True}]
    coordinator.answers["/v1/pservers"] = (200, {"shards": shards})
    (found,) = client.pservers()
    assert (found.shard, found.address, found.is_ready) == (0, "h:1", True)
    coordinator.answers["/v1/pservers"] = (200, {"shards": [{"address": "h:1"}]})
    with pytest.raises(DataError, match="list of pservers"):
        client.pservers()
    client.close()


def test_a_coordinator_that_moved_is_found_by_the_run_directory(coordinator: Scripted, tmp_path: Path) -> None:
    client = CoordinatorClient(str(tmp_path))
    with pytest.raises(Unavailable, match="not started"):
        client.status()
    write_coordinator(tmp_path, "http://127.0.0.1:9", 1)
    with pytest.raises(Unavailable):
        client.status()
    threading.Timer(0.1, write_coordinator, (tmp_path, coordinator.url, 2)).start()
    coordinator.answers["/v1/status"] = (200, {"incarnation": 2})
    assert patiently(client.status, wait_s=20.0) == {"incarnation": 2}
    client.close()


def test_patience_ends() -> None:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise Unavailable("nobody there")

    with pytest.raises(Unavailable):
        patiently(fail, wait_s=0.3)
    assert len(calls) >= 2
    calls.clear()
    with pytest.raises(Unavailable):
        patiently(fail, wait_s=60.0, is_over=lambda: True)
    assert len(calls) == 1


def test_metrics_survive_the_way_and_damage_is_noticed() -> None:
    metrics = Metrics()
    metrics.update(np.array([0.5, -1.0]), np.array([1.0, 0.0]))
    text = pack_metrics(metrics.state())
    assert Metrics.from_state(unpack_metrics(text)).compute() == metrics.compute()
    for damaged in (text[:-8], text[:-1], "*" + text, "", "AAAA" + text):
        with pytest.raises(Corruption):
            Metrics.check_state(unpack_metrics(damaged))
