"""A published version reaches every replica, or none changes."""

from __future__ import annotations

import time

import pytest
from tests.unit.cube.transfer.conftest import Bed


def test_a_published_version_reaches_every_replica(bed: Bed) -> None:
    _, rollout = bed.transfer()
    rollout.turn()
    assert rollout.trouble == "nothing published yet"
    bed.feed.publish(1)
    rollout.turn()
    assert bed.active() == [1, 1, 1, 1]
    assert rollout.journal.live == 1
    assert rollout.journal.history[-1]["outcome"] == "done"
    assert bed.builder.built == [(1, False)]
    rollout.turn()
    assert len(rollout.journal.history) == 1


def test_no_server_changes_before_every_shard_is_ready(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    for server in bed.servers[2:]:
        server.refuse_loads = True
    bed.feed.publish(2)
    rollout.turn()
    assert bed.active() == [1, 1, 1, 1]
    assert rollout.journal.history[-1]["outcome"] == "failed"
    assert "Corruption" in rollout.journal.history[-1]["message"]


def test_a_refused_version_is_not_tried_again_and_the_next_one_goes_out(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.builder.corrupt.add(1)
    bed.feed.publish(1)
    for _ in range(3):
        rollout.turn()
    assert [one["outcome"] for one in rollout.journal.history] == ["failed"]
    assert bed.active() == [0, 0, 0, 0]
    bed.feed.publish(2)
    rollout.turn()
    assert bed.active() == [2, 2, 2, 2]


def test_one_replica_that_refuses_does_not_stop_the_others(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.servers[1].refuse_loads = True
    bed.feed.publish(1)
    rollout.turn()
    assert bed.active() == [1, 0, 1, 1]
    assert rollout.journal.history[-1]["message"] == "behind: 0/1"
    bed.servers[1].refuse_loads = False
    bed.turn_until(rollout, lambda: bed.active() == [1, 1, 1, 1])


def test_policy_all_waits_for_every_replica(bed: Bed) -> None:
    _, rollout = bed.transfer(require={"policy": "all"}, patience={"prepare_s": 0.5, "retries": 0})
    bed.servers[1].is_down = True
    bed.feed.publish(1)
    rollout.turn()
    assert bed.active() == [0, 0, 0, 0]
    assert rollout.journal.history[-1]["outcome"] == "failed"
    assert "0/1" in rollout.journal.history[-1]["message"]


def test_a_replica_down_for_the_whole_rollout_is_brought_up_when_it_returns(bed: Bed) -> None:
    _, rollout = bed.transfer(require={"straggler_s": 0.3})
    bed.feed.publish(1)
    bed.turn_until(rollout, lambda: bed.active() == [1, 1, 1, 1])
    bed.servers[3].is_down = True
    bed.feed.publish(2, parent=1)
    bed.turn_until(rollout, lambda: bed.active() == [2, 2, 2, 1])
    bed.servers[3].is_down = False
    bed.turn_until(rollout, lambda: bed.active() == [2, 2, 2, 2])


@pytest.mark.slow
def test_a_shard_down_for_the_whole_rollout_postpones_it_until_the_shard_returns(bed: Bed) -> None:
    _, rollout = bed.transfer(patience={"prepare_s": 2.0, "longest_pause_s": 0.2})
    bed.feed.publish(1)
    bed.turn_until(rollout, lambda: bed.active() == [1] * 4)
    tries = len(rollout.journal.history)
    for server in bed.servers[2:]:
        server.is_down = True
    time.sleep(0.3)
    bed.feed.publish(2)
    bed.turn_until(rollout, lambda: len(rollout.journal.history) > tries + 1)
    assert {one["outcome"] for one in rollout.journal.history[tries:]} == {"postponed"}
    assert bed.active() == [1, 1, 1, 1]
    for server in bed.servers[2:]:
        server.is_down = False
    bed.turn_until(rollout, lambda: bed.active() == [2, 2, 2, 2])


def test_attempts_at_a_version_are_bounded(bed: Bed) -> None:
    _, rollout = bed.transfer(patience={"prepare_s": 0.2, "longest_pause_s": 0.1, "retries": 2})
    for server in bed.servers:
        server.is_down = True
    bed.feed.publish(1)
    bed.turn_until(rollout, lambda: any(one["outcome"] == "failed" for one in rollout.journal.history))
    assert [one["outcome"] for one in rollout.journal.history] == ["postponed", "postponed", "failed"]
    rollout.turn()
    assert len(rollout.journal.history) == 3


def test_a_delta_sends_only_itself(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    bed.feed.publish(2, parent=1)
    rollout.turn()
    assert bed.builder.built == [(1, False), (2, False)]
    assert bed.active() == [2, 2, 2, 2]
    assert [call for call in bed.servers[0].calls if call[0] == "load"] == [("load", "ctr", 1), ("load", "ctr", 2)]


def test_two_deltas_published_at_once_go_out_as_a_chain(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    bed.feed.publish(2, parent=1)
    bed.feed.publish(3, parent=2)
    rollout.turn()
    assert bed.active() == [3, 3, 3, 3]
    assert len(rollout.journal.history) == 2


def test_servers_that_lack_the_parent_get_a_base_of_the_chain(bed: Bed) -> None:
    _, rollout = bed.transfer()
    for version in range(1, 5):
        bed.feed.parents[version] = version - 1
    bed.feed.publish(5, parent=4)
    rollout.turn()
    assert bed.builder.built == [(5, True)]
    assert bed.active() == [5, 5, 5, 5]
    bed.feed.publish(6, parent=5)
    rollout.turn()
    assert bed.builder.built == [(5, True), (6, False)]
    assert bed.active() == [6, 6, 6, 6]


@pytest.mark.slow
def test_a_replica_that_lost_its_disk_gets_a_base_and_the_others_the_delta(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    bed.feed.publish(2, parent=1)
    rollout.turn()
    directory = bed.agents[0].agent.directory
    for version in (1, 2):
        directory.discard("ctr", version)
    (bed.servers[0].data / "ctr/LIVE").unlink()
    bed.servers[0].restart_empty()
    bed.turn_until(rollout, lambda: bed.active() == [2, 2, 2, 2])
    bed.feed.publish(3, parent=2)
    bed.turn_until(rollout, lambda: bed.active() == [3, 3, 3, 3])


@pytest.mark.slow
def test_long_chains_are_compacted(bed: Bed) -> None:
    _, rollout = bed.transfer(build={"max_chain": 2})
    bed.feed.publish(1)
    rollout.turn()
    for version in (2, 3, 4, 5):
        bed.feed.publish(version, parent=version - 1)
        rollout.turn()
    assert bed.builder.built == [(1, False), (2, False), (3, False), (4, True), (5, False)]
    assert bed.active() == [5] * 4


def test_a_delta_with_a_gap_waits_for_its_parent(bed: Bed) -> None:
    _, rollout = bed.transfer(patience={"longest_pause_s": 0.1})
    bed.feed.publish(1)
    rollout.turn()
    bed.feed.publish(3, parent=2)
    rollout.turn()
    assert rollout.journal.history[-1]["outcome"] == "postponed"
    assert "version 2 was never published" in rollout.journal.history[-1]["message"]
    assert bed.active() == [1] * 4
    bed.feed.parents[2] = 1
    bed.turn_until(rollout, lambda: bed.active() == [3] * 4)


def test_the_same_version_announced_twice_does_nothing(bed: Bed) -> None:
    _, rollout = bed.transfer()
    bed.feed.publish(1)
    rollout.turn()
    bed.feed.publish(1)
    rollout.turn()
    assert len(rollout.journal.history) == 1
    assert rollout.journal.handled == "2:1"


def test_old_versions_are_retired_and_their_builds_pruned(bed: Bed) -> None:
    process, rollout = bed.transfer(build={"keep": 2})
    bed.feed.publish(1)
    rollout.turn()
    for version in (2, 3, 4):
        bed.feed.publish(version)
        rollout.turn()
    bed.turn_until(rollout, lambda: all(sorted(server.models["ctr"]) == [3, 4] for server in bed.servers))
    assert process.builds.versions("ctr") == [3, 4]
    assert bed.feed.pins[-1] == [3, 4]
