"""A hot standby: what was acknowledged survives a killed primary, and a standby that is gone holds up nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.process.ps.pserver_process import DENSE, FEASIGNS, Process, connect, gradients, head, rows_of

from elasticctr.errors import DeadlineExceeded, FailedPrecondition
from elasticctr.ps.identity import build
from elasticctr.ps.trainer.client import PsClient


@pytest.fixture
def primary() -> Iterator[Process]:
    process = Process(0, 1)
    yield process
    process.kill()


@pytest.fixture
def standby() -> Iterator[Process]:
    process = Process(0, 1, is_standby=True)
    yield process
    process.kill()


def wait_until(is_so: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def operator_of(process: Process) -> PsClient:
    """A connection that orders and does not train: a standby takes those, too."""
    attach = {"role": "operator", "id": 0, "build": build(), "identity": "it", "strategy": "async"}
    return connect([process], trainer=0, attach=attach)


def test_a_primary_killed_under_load_loses_no_acknowledged_push(
    primary: Process, standby: Process, tmp_path: Path
) -> None:
    client, orders = connect([primary]), operator_of(standby)
    client.set_dense(np.zeros(DENSE, np.float32))
    rows_of(client, FEASIGNS, insert=True)
    acknowledged = 0
    is_over = threading.Event()

    def is_acknowledged() -> bool:
        while True:
            try:
                client.wait_pushes(0, timeout_s=0.5)
            except DeadlineExceeded:
                if is_over.is_set():
                    return False
            else:
                return True

    def train() -> None:
        nonlocal acknowledged
        while not is_over.is_set():
            client.push_rows(head(acknowledged), gradients(FEASIGNS, 0.01), np.full(DENSE, 0.01, np.float32))
            if not is_acknowledged():
                return
            acknowledged += 1

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        wait_until(lambda: acknowledged > 20)
        with pytest.raises(FailedPrecondition):
            orders.control(0, "promote")
        orders.control(0, "follow", primary=primary.address)
        wait_until(lambda: orders.control(0, "stats")["is_caught_up"])
        before = acknowledged
        wait_until(lambda: acknowledged > before + 50)
        primary.kill()
    finally:
        is_over.set()
        trainer.join()
    promoted = orders.control(0, "promote")
    assert promoted["role"] == "primary" and promoted["is_ready"]
    # The push that was under way may be there or not; the trainer sends it again and it counts once.
    [[cursor]] = orders.cursors([9])
    assert acknowledged <= cursor <= acknowledged + 1
    successor = connect([standby])
    successor.push_rows(head(acknowledged), gradients(FEASIGNS, 0.01), np.full(DENSE, 0.01, np.float32))
    successor.wait_pushes()
    out = np.zeros(DENSE, np.float32)
    successor.pull_dense(out)
    assert np.allclose(out, -0.5 * 0.01 * (acknowledged + 1), atol=1e-4)
    saved = successor.control(0, "save", directory=str(tmp_path))
    assert saved["cursors"] == {"9": acknowledged + 1}


def test_a_standby_that_stops_is_dropped_and_comes_back(primary: Process, standby: Process) -> None:
    client, orders = connect([primary]), operator_of(standby)
    rows_of(client, FEASIGNS, insert=True)
    orders.control(0, "follow", primary=primary.address)
    wait_until(lambda: client.control(0, "stats")["standby"] == "in_sync")
    standby.pause()
    client.push_rows(head(0), gradients(FEASIGNS))
    client.wait_pushes(0, timeout_s=60)  # after the standby's time to say a word
    stats = client.control(0, "stats")
    assert stats["standby"] == "none" and stats["standby_drops"] == 1
    client.push_rows(head(1), gradients(FEASIGNS))
    client.wait_pushes(0, timeout_s=60)
    standby.go_on()
    wait_until(lambda: client.control(0, "stats")["standby"] == "in_sync")
    wait_until(lambda: orders.control(0, "stats")["is_caught_up"])
    assert orders.control(0, "stats")["step"] == 2
    standby.kill()
    client.push_rows(head(2), gradients(FEASIGNS))
    client.wait_pushes(0, timeout_s=60)
    assert client.control(0, "stats")["standby_drops"] == 2


def test_a_primary_that_comes_back_empty_is_the_next_standby(primary: Process) -> None:
    client = connect([primary])
    client.set_dense(np.zeros(DENSE, np.float32))
    client.push_rows(head(0), gradients(FEASIGNS), np.full(DENSE, 0.5, np.float32))
    client.wait_pushes()
    again = Process(0, 1, load=None)  # started as a primary; another serves the shard by now
    try:
        orders = operator_of(again)
        orders.control(0, "follow", primary=primary.address)
        wait_until(lambda: client.control(0, "stats")["standby"] == "in_sync")
        wait_until(lambda: orders.control(0, "stats")["is_caught_up"])
        assert orders.control(0, "stats")["role"] == "standby"
        with pytest.raises(FailedPrecondition, match="only a standby can follow"):
            client.control(0, "follow", primary=again.address)  # one that serves never does
        primary.kill()
        assert orders.control(0, "promote")["role"] == "primary"
        assert orders.cursors([9]) == [[1]]
    finally:
        again.kill()


def test_a_standby_told_to_load_serves(standby: Process) -> None:
    """Nobody else has the shard: the run goes back to a checkpoint, or as here to nothing."""
    loaded = operator_of(standby).control(0, "load", directory=None)
    assert loaded["role"] == "primary" and loaded["is_ready"]
    client = connect([standby])
    client.push_rows(head(0), gradients(FEASIGNS))
    client.wait_pushes()
    assert client.cursors([9]) == [[1]]
