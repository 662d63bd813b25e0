"""Rollbacks, pauses and orders over HTTP while versions are published."""

from __future__ import annotations

import threading
import time

import pytest
from tests.unit.cube.transfer.conftest import Bed

from elasticctr.errors import NotFound


def test_a_rollback_is_instant_while_the_version_is_resident(bed: Bed) -> None:
    _, rollout = bed.transfer()
    for version in (1, 2):
        bed.feed.publish(version)
        rollout.turn()
    loads = sum(call[0] == "load" for server in bed.servers for call in server.calls)
    bed.feed.rollback(1)
    rollout.turn()
    assert bed.active() == [1] * 4
    assert (rollout.journal.live, rollout.journal.previous) == (1, 2)
    assert loads == sum(call[0] == "load" for server in bed.servers for call in server.calls)
    assert bed.builder.built == [(1, False), (2, False)]


def test_a_rollback_to_a_retired_version_prepares_it_again(bed: Bed) -> None:
    _, rollout = bed.transfer(build={"keep": 1})
    for version in (1, 2, 3):
        bed.feed.publish(version)
        rollout.turn()
    bed.turn_until(rollout, lambda: all(sorted(server.models["ctr"]) == [2, 3] for server in bed.servers))
    assert bed.agents[0].agent.directory.versions("ctr") == [2, 3]
    rollout.ask(1, "rollback")
    rollout.turn()
    assert bed.active() == [1] * 4
    assert bed.builder.built.count((1, False)) == 2


def test_a_rollback_over_http_holds_until_something_newer_is_published(bed: Bed) -> None:
    process, rollout = bed.transfer()
    for version in (1, 2):
        bed.feed.publish(version)
        rollout.turn()
    answer = bed.peer(process).post("/v1/rollback", {"model": "ctr"})
    assert answer == {"model": "ctr", "version": 1, "reason": "rollback"}
    for _ in range(3):
        rollout.turn()
    assert bed.active() == [1] * 4
    bed.feed.publish(3)
    rollout.turn()
    assert bed.active() == [3] * 4
    with pytest.raises(NotFound, match="never published"):
        bed.peer(process).post("/v1/rollout", {"model": "ctr", "version": 9})


def test_a_stuck_rollout_gives_way_to_an_order(bed: Bed) -> None:
    _, rollout = bed.transfer(patience={"prepare_s": 30.0})
    for version in (1, 2):
        bed.feed.publish(version)
        rollout.turn()
    for server in bed.servers:
        server.load_s = 60
    bed.feed.publish(3)
    turning = threading.Thread(target=rollout.turn)
    turning.start()
    while rollout.journal.state != "preparing":
        time.sleep(0.02)
    rollout.ask(1, "rollback")
    turning.join(60)
    assert not turning.is_alive()
    assert rollout.journal.history[-1]["outcome"] == "superseded"
    bed.turn_until(rollout, lambda: bed.active() == [1] * 4)


def test_paused_means_nothing_new_begins(bed: Bed) -> None:
    process, rollout = bed.transfer()
    bed.peer(process).post("/v1/pause", {})
    bed.feed.publish(1)
    rollout.turn()
    assert bed.active() == [0] * 4
    bed.peer(process).post("/v1/resume", {})
    rollout.turn()
    assert bed.active() == [1] * 4
