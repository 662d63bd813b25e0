"""Reports of a trainer: in order, repeated while nobody answers, dropped when they are void."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.ps.scripted import Scripted, scripted

from elasticctr.data.chunks import Chunk
from elasticctr.errors import FailedPrecondition, Unavailable
from elasticctr.ps.addresses import write_coordinator
from elasticctr.ps.coordinator_client import CoordinatorClient, unpack_metrics
from elasticctr.ps.trainer.leases import ChunkLease
from elasticctr.ps.trainer.reporting import Reporter
from elasticctr.train.metrics.metrics import Metrics


@pytest.fixture
def coordinator() -> Iterator[Scripted]:
    with scripted() as server:
        yield server


def make_reporter(where: str, **more: Any) -> Reporter:
    return Reporter(CoordinatorClient(where), 7, lambda: {"samples": 1}, **({"wait_s": 20.0, "beat_s": 0.05} | more))


def make_lease(number: int = 0) -> ChunkLease:
    return ChunkLease("train", Chunk("log", "file", number=number), "")


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_reports_arrive_in_order_with_their_metrics(coordinator: Scripted) -> None:
    coordinator.answers["/v1/done"] = (200, {"is_held": True, "rate_scale": 0.5})
    reporter = make_reporter(coordinator.url, beat_s=60.0)
    lease, metrics = make_lease(3), Metrics()
    metrics.update(np.array([1.0, -1.0]), np.array([1.0, 0.0]))
    reporter.progress(lease, {"batches": 1, "samples": 2, "loss_sum": 0.5}, metrics.state())
    reporter.done(lease, {"batches": 2, "samples": 4, "loss_sum": 0.1}, None)
    assert reporter.drain(20)
    reporter.close()
    assert [path for path, _, _ in coordinator.told] == ["/v1/progress", "/v1/done"]
    body = coordinator.told[0][1]
    assert (body["id"], body["chunk"], body["batches"]) == (7, "3", 1)
    assert Metrics.from_state(unpack_metrics(body["metrics"])).compute() == metrics.compute()
    assert lease.is_over
    assert not lease.is_lost
    assert reporter.rate_scale == 0.5


def test_a_lease_that_ran_out_is_noticed(coordinator: Scripted) -> None:
    coordinator.answers["/v1/progress"] = (200, {"is_held": False})
    reporter = make_reporter(coordinator.url)
    lease = make_lease()
    reporter.progress(lease, {"batches": 1}, None)
    wait_until(lambda: lease.is_lost)
    reporter.close()


def test_orders_come_with_beats(coordinator: Scripted) -> None:
    reporter = make_reporter(coordinator.url)
    wait_until(lambda: len(coordinator.told) > 1)
    assert coordinator.told[0][1] == {"id": 7, "stats": {"samples": 1}}
    assert not reporter.is_reload
    coordinator.answers["/v1/beat"] = (200, {"order": "reload"})
    wait_until(lambda: reporter.is_reload)
    coordinator.answers["/v1/beat"] = (200, {"order": "stop"})
    wait_until(lambda: reporter.is_stop)
    reporter.forget()
    assert not reporter.is_reload
    reporter.close()


def test_what_nobody_took_is_repeated(coordinator: Scripted, tmp_path: Path) -> None:
    reporter = make_reporter(str(tmp_path))  # no coordinator yet
    reporter.done(make_lease(), {"batches": 2}, None)
    assert not reporter.drain(0.3)
    write_coordinator(tmp_path, coordinator.url, 1)
    assert reporter.drain(20)
    reporter.close()
    assert [body["batches"] for path, body, _ in coordinator.told if path == "/v1/done"] == [2]


def test_void_reports_are_not_sent(coordinator: Scripted, tmp_path: Path) -> None:
    reporter = make_reporter(str(tmp_path))
    reporter.done(make_lease(), {"batches": 2}, None)
    reporter.forget()
    write_coordinator(tmp_path, coordinator.url, 1)
    wait_until(lambda: len(coordinator.told) > 0)
    reporter.close()
    assert {path for path, _, _ in coordinator.told} == {"/v1/beat"}


def test_too_long_a_silence_and_a_refusal_end_the_trainer(coordinator: Scripted, tmp_path: Path) -> None:
    lonely = make_reporter(str(tmp_path), wait_s=0.2)
    wait_until(lambda: lonely.failure is not None)
    assert isinstance(lonely.failure, Unavailable)
    lonely.close()
    refusal = {"error": {"code": "FailedPrecondition", "message": "join again"}}
    coordinator.answers["/v1/beat"] = (412, refusal)
    refused = make_reporter(coordinator.url)
    wait_until(lambda: refused.failure is not None)
    assert isinstance(refused.failure, FailedPrecondition)
    refused.close()


def test_a_hurried_beat_does_not_wait_for_its_time(coordinator: Scripted) -> None:
    coordinator.answers["/v1/beat"] = (200, {"order": "reload"})
    reporter = make_reporter(coordinator.url, beat_s=60.0)
    assert not reporter.is_reload
    reporter.hurry()
    wait_until(lambda: reporter.is_reload)
    reporter.close()
    assert [path for path, _, _ in coordinator.told] == ["/v1/beat"]  # and the next one is in its time again
