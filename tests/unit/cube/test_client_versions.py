"""Every lookup is answered from one version, whatever the servers activate meanwhile."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.unit.cube.clients import KEYS, TABLE, MakeServer, check, connect

from elasticctr.errors import ConfigError, NotFound


def test_a_new_active_version_is_used_by_the_next_calls(make: MakeServer) -> None:
    servers = [make(i, 2) for i in range(2)]
    client = connect(*([s] for s in servers))
    check(client.get(TABLE, KEYS))
    for server in servers:
        server.versions.add(2)
    servers[1].active = 2  # an activation under way: the other shard still calls 1 active
    check(client.get(TABLE, KEYS), version=1)
    for _ in range(5):
        check(client.get(TABLE, KEYS), version=2)
    servers[0].active = 2
    check(client.get(TABLE, KEYS), version=2)
    for server in servers:
        server.active = 1  # rolled back
    check(client.get(TABLE, KEYS), version=2)
    check(client.get(TABLE, KEYS), version=1)


def test_a_version_that_is_gone_is_replaced_by_the_one_active_now(make: MakeServer) -> None:
    servers = [[make(i, 2), make(i, 2)] for i in range(2)]
    client = connect(*servers)
    check(client.get(TABLE, KEYS))
    for server in (s for replicas in servers for s in replicas):
        server.versions, server.active = {5, 6}, 6
    check(client.get(TABLE, KEYS), version=6)
    assert client.stats()["versions_gone"] == 1


def test_a_lagging_replica_never_leads_to_a_mix(make: MakeServer) -> None:
    servers = [[make(i, 2, versions=(7, 8), active=8), make(i, 2, versions=(7, 8), active=8)] for i in range(2)]
    servers[1][1].versions, servers[1][1].active = {7}, 7
    client = connect(*servers, retries=2)
    for _ in range(20):
        check(client.get(TABLE, KEYS), version=8)


def test_a_version_asked_for_is_that_one_or_not_found(make: MakeServer) -> None:
    servers = [make(i, 2, versions=(1, 2), active=2) for i in range(2)]
    client = connect(*([s] for s in servers))
    check(client.get(TABLE, KEYS, version=1), version=1)
    check(client.get(TABLE, KEYS), version=2)
    with pytest.raises(NotFound, match=r"version 9.*they have 1, 2"):
        client.get(TABLE, KEYS, version=9)
    servers[1].versions = {2}
    with pytest.raises(NotFound, match="version 1"):
        client.get(TABLE, KEYS, version=1)
    with pytest.raises(ConfigError):
        client.get(TABLE, KEYS, version=0)


def test_the_cache_answers_repeats_and_never_from_an_old_version(make: MakeServer) -> None:
    server = make(versions=(1, 2))
    client = connect([server], cache_bytes=1 << 20, refresh_ms=50)
    check(client.get(TABLE, KEYS))
    check(client.get(TABLE, KEYS))
    assert server.keys_seen == KEYS.size
    stats = client.stats()
    assert (stats["cache_hits"], stats["cache_misses"]) == (KEYS.size, KEYS.size)
    assert 0 < stats["cache_bytes"] <= 1 << 20
    assert stats["cache_entries"] == KEYS.size  # feasigns known to be missing too
    check(client.get("ctr/linear", KEYS))
    assert server.keys_seen == 2 * KEYS.size
    server.active = 2
    time.sleep(0.1)
    check(client.get(TABLE, KEYS), version=2)
    check(client.get(TABLE, KEYS), version=2)
    assert server.keys_seen == 3 * KEYS.size
    check(client.get(TABLE, KEYS, version=1))
    assert server.keys_seen == 3 * KEYS.size


def test_the_cache_stays_within_its_bytes_and_right_while_it_evicts(make: MakeServer) -> None:
    client = connect([make()], cache_bytes=20_000)
    rng = np.random.default_rng(5)
    for _ in range(200):
        keys = KEYS[rng.zipf(1.3, 100) % KEYS.size]
        check(client.get(TABLE, keys), keys=keys)
    stats = client.stats()
    assert stats["cache_bytes"] <= 20_000
    assert stats["cache_hits"] > 0
    assert stats["cache_entries"] < KEYS.size
