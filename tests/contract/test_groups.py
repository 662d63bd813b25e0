"""Steps of a group whose pservers came back from a checkpoint with different cursors: saved while it was stepping, one
of them may have a batch that the other lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.harness import wait_until
from tests.contract.training import Cluster, make_job, serving

from elasticctr.ps.trainer.client import GroupMode, PsClient, PushKind
from elasticctr.ps.trainer.remote import make_head

_TIMEOUT_S = 60.0


def put_ahead(cluster: Cluster, chunk: int, shard: int) -> None:
    """One pserver has the first batch of a chunk, the other does not."""
    client = cluster.connect(10**6)
    client.set_cursors(chunk, [0 if s == shard else 9 for s in range(cluster.count)])
    client.push_rows(make_head(chunk, 0, 1, 8, kind=PushKind.nothing), [])
    client.wait_pushes(0, _TIMEOUT_S)


def push(client: PsClient, chunk: int, batch: int, group: GroupMode) -> None:
    client.push_rows(make_head(chunk, batch, batch + 1, 8, kind=PushKind.nothing, group=group), [])


@pytest.mark.promise(
    "sync rolls back to a checkpoint in which chunks are at different batches on different pservers",
    "every member takes part in every step of every pserver, so no trainer waits for one that waits elsewhere",
)
@pytest.mark.parametrize("strategy", ["sync", "hybrid apart"])
def test_cursors_that_differ_stop_no_group(strategy: str, tmp_path: Path) -> None:
    group = GroupMode.dense if strategy == "hybrid apart" else GroupMode.all
    with serving(make_job(tmp_path, strategy), 2) as cluster:
        put_ahead(cluster, 11, shard=0)
        put_ahead(cluster, 12, shard=1)
        assert cluster.cursors([11, 12, 13]) == [[1, 0, 0], [0, 1, 0]]
        cluster.set_group([1, 2, 3])
        clients = {trainer: cluster.connect(trainer) for trainer in (1, 2, 3)}
        for trainer, client in clients.items():
            chunk = 10 + trainer
            client.set_cursors(chunk, [cursors[0] for cursors in client.cursors([chunk])])
        for batch in range(4):
            for trainer, client in clients.items():
                push(client, 10 + trainer, batch, group)
            for client in clients.values():
                client.wait_pushes(0, _TIMEOUT_S)
        assert cluster.cursors([11, 12, 13]) == [[4, 4, 4], [4, 4, 4]]
        for address in cluster.addresses:
            stats = cluster.control.control(address, {"op": "stats"})
            assert (stats["waiting"], stats["missing"], stats["rounds"]) == (0, [], 4)


def test_pservers_say_whom_a_group_waits_for(tmp_path: Path) -> None:
    with serving(make_job(tmp_path, "sync"), 2) as cluster:
        cluster.set_group([1, 2, 3])
        client = cluster.connect(2)
        push(client, 12, 0, GroupMode.all)
        for address in cluster.addresses:
            wait_until(lambda at=address: cluster.control.control(at, {"op": "stats"})["waiting"] == 1, "a push", 60.0)
            assert cluster.control.control(address, {"op": "stats"})["missing"] == [1, 3]
        client.drop()
