"""Lookups through the client: order, shards, frames, tables, and what it refuses to take."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
from tests.unit.cube.clients import KEYS, TABLE, MakeServer, check, connect
from tests.unit.cube.fake_server import expected_found

from elasticctr.cube.client import AsyncCubeClient, as_feasigns
from elasticctr.cube.settings import CubeSettings
from elasticctr.errors import DataError, FailedPrecondition


def test_rows_of_several_shards_come_back_in_the_order_asked(make: MakeServer) -> None:
    servers = [make(i, 3) for i in range(3)]
    client = connect(*([s] for s in servers))
    check(client.get(TABLE, KEYS))
    assert sum(s.keys_seen for s in servers) == KEYS.size
    assert all(s.keys_seen for s in servers)
    assert client.stats()["missing"] == np.count_nonzero(~expected_found(KEYS))


def test_modulo_sharding_is_learned_from_the_servers(make: MakeServer) -> None:
    servers = [make(i, 2, sharding="modulo") for i in range(2)]
    client = connect(*([s] for s in servers))
    keys = np.arange(100, dtype=np.uint64)
    check(client.get(TABLE, keys), keys=keys)
    client.get(TABLE, np.full(10, 7, np.uint64))
    assert servers[0].keys_seen == 50
    with pytest.raises(FailedPrecondition, match="modulo"):
        connect(*([s] for s in servers), sharding="buckets").get(TABLE, keys)


def test_a_shard_without_feasigns_is_not_asked(make: MakeServer) -> None:
    servers = [make(i, 2, sharding="modulo") for i in range(2)]
    check(connect(*([s] for s in servers)).get(TABLE, KEYS[KEYS % 2 == 0]), keys=KEYS[KEYS % 2 == 0])
    assert servers[1].seen["ok"] == 0


def test_repeated_feasigns_are_sent_once_and_answered_everywhere(make: MakeServer) -> None:
    server = make()
    client = connect([server])
    keys = np.tile(KEYS[:20], 10)
    check(client.get(TABLE, keys), keys=keys)
    assert server.keys_seen == 20
    assert client.stats()["repeated"] == 180


def test_no_feasigns_need_no_lookup(make: MakeServer) -> None:
    server = make()
    lookup = connect([server]).get(TABLE, [])
    assert (lookup.rows.shape, lookup.found.shape, lookup.version) == ((0, 4), (0,), 1)
    assert server.seen["ok"] == 0


def test_more_feasigns_than_a_frame_may_hold_go_in_several(make: MakeServer) -> None:
    servers = [make(i, 2) for i in range(2)]
    for server in servers:
        server.max_keys = 64
    check(connect(*([s] for s in servers)).get(TABLE, KEYS))
    assert max(s.largest for s in servers) <= 64


def test_connections_are_reused(make: MakeServer) -> None:
    server = make()
    client = connect([server])
    for _ in range(20):
        check(client.get(TABLE, KEYS))
    assert server.connections == 1


def test_several_tables_are_answered_in_one_version(make: MakeServer) -> None:
    client = connect([make()], model="ctr")
    lookups = client.get_many({"embedding": KEYS[:50], "ctr/linear": KEYS[50:]})
    assert list(lookups) == ["embedding", "ctr/linear"]
    check(lookups["embedding"], keys=KEYS[:50])
    check(lookups["ctr/linear"], keys=KEYS[50:])


def test_threads_share_a_client(make: MakeServer) -> None:
    servers = [[make(i, 2), make(i, 2)] for i in range(2)]
    client = connect(*servers, cache_bytes=4096)
    failures: list[BaseException] = []

    def ask(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(40):
                keys = rng.choice(KEYS, 50)
                check(client.get(TABLE, keys), keys=keys)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert client.stats()["calls"] == 320


def test_a_hundred_lookups_at_once_from_asyncio(make: MakeServer) -> None:
    servers = [make(i, 2) for i in range(2)]
    servers[0].behave = "slow:0.05"

    async def ask() -> None:
        settings = CubeSettings(
            shards=tuple((s.address,) for s in servers), timeout_ms=60_000, connect_ms=60_000, backup_ms=0
        )
        async with AsyncCubeClient(settings, threads=16) as client:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.01)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            for lookup in await asyncio.gather(*(client.get(TABLE, KEYS) for _ in range(100))):
                check(lookup)
            ticking.cancel()
            assert ticks > 0  # the loop went on

    asyncio.run(ask())


def test_a_closed_client_says_so(make: MakeServer) -> None:
    with connect([make()]) as client:
        check(client.get(TABLE, KEYS))
    with pytest.raises(FailedPrecondition, match="closed"):
        client.get(TABLE, KEYS)


def test_feasigns_may_come_as_lists_and_signed_integers() -> None:
    big = 2**64 - 1
    assert as_feasigns([1, big]).tolist() == [1, big]
    assert as_feasigns(np.array([-1], np.int64)).tolist() == [big]
    assert as_feasigns(np.array([3], np.uint8)).tolist() == [3]
    for wrong in (np.array([1.5]), np.zeros((2, 2), np.uint64), ["a"], [-1]):
        with pytest.raises(DataError):
            as_feasigns(wrong)
