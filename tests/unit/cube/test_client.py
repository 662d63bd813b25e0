"""The client against servers that misbehave: each failure has its error class, and none returns rows."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.unit.cube.fake_server import RETRY_AFTER_MS, FakeServer, expected_found, expected_rows

from elasticctr.cube.client import AsyncCubeClient, CubeClient, as_feasigns
from elasticctr.cube.lookup import Lookup
from elasticctr.cube.settings import CubeSettings
from elasticctr.errors import (
    ConfigError,
    Corruption,
    DataError,
    DeadlineExceeded,
    ElasticCTRError,
    FailedPrecondition,
    InternalError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from elasticctr.net.access import write_token

KEYS = np.arange(1, 301, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
TABLE = "ctr/embedding"
MakeServer = Callable[..., FakeServer]


@pytest.fixture
def make() -> Iterator[MakeServer]:
    servers: list[FakeServer] = []

    def make_one(*args: object, **settings: object) -> FakeServer:
        servers.append(FakeServer(*args, **settings))  # type: ignore[arg-type]
        return servers[-1]

    yield make_one
    for server in servers:
        server.stop()


def connect(*shards: list[FakeServer], token: str | None = None, **settings: object) -> CubeClient:
    addresses = [[replica.address for replica in replicas] for replicas in shards]
    defaults: dict[str, object] = {"timeout_ms": 60_000, "connect_ms": 60_000, "backup_ms": 0, "retries": 1}
    return CubeClient(CubeSettings.model_validate(defaults | {"shards": addresses} | settings), token)


def check(lookup: Lookup, version: int = 1, keys: np.ndarray = KEYS) -> None:
    assert lookup.version == version
    assert lookup.degraded == ()
    np.testing.assert_array_equal(lookup.found, expected_found(keys))
    np.testing.assert_array_equal(lookup.rows, expected_rows(version, keys))


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


@pytest.mark.parametrize(
    ("behave", "error"),
    [
        ("close", Unavailable),
        ("cut", Unavailable),
        ("garbage", Corruption),
        ("oversized", Corruption),
        ("oversized_error", Corruption),
        ("wrong_id", Corruption),
        ("wrong_version", Corruption),
        ("wrong_table", Corruption),
        ("bad_count", Corruption),
        ("wide_rows", FailedPrecondition),
        ("overloaded", Unavailable),
        ("nothing_active", Unavailable),
        ("wrong_shard", FailedPrecondition),
        ("malformed", DataError),
        ("internal", InternalError),
        ("no_table", NotFound),
        ("hang", DeadlineExceeded),
    ],
)
def test_a_bad_answer_has_its_type_and_names_the_server(
    make: MakeServer, behave: str, error: type[ElasticCTRError]
) -> None:
    good, bad = make(0, 2), make(1, 2)
    client = connect([good], [bad])
    check(client.get(TABLE, KEYS))
    bad.behave = behave
    with pytest.raises(error, match=f"shard 1 of 2: {bad.address}"):
        client.get(TABLE, KEYS, timeout_s=0.3 if behave == "hang" else 60)
    bad.behave = "ok"
    check(client.get(TABLE, KEYS))
    assert client.stats()["errors"] == {error.__name__: 1}


@pytest.mark.parametrize(
    "behave", ["close", "cut", "garbage", "wrong_id", "bad_count", "overloaded", "gone", "internal"]
)
def test_another_replica_answers_for_a_bad_one(make: MakeServer, behave: str) -> None:
    bad, good = make(), make()
    client = connect([bad, good])
    client.connect()
    bad.behave = behave
    for _ in range(20):
        check(client.get(TABLE, KEYS))
    assert bad.seen[behave] > 0
    assert client.stats()["errors"] == {}


def test_a_refused_connection_goes_to_another_replica_and_a_dead_shard_is_unavailable(make: MakeServer) -> None:
    servers = [[make(i, 2), make(i, 2)] for i in range(2)]
    client = connect(*servers)
    check(client.get(TABLE, KEYS))
    servers[1][0].stop()
    for _ in range(10):
        check(client.get(TABLE, KEYS))
    servers[1][1].stop()
    with pytest.raises(Unavailable) as caught:
        client.get(TABLE, KEYS)
    assert "shard 1 of 2" in str(caught.value)
    assert all(s.address in str(caught.value) for s in servers[1])
    assert "shard 0" not in str(caught.value)


def test_a_dead_shard_degrades_only_if_asked_and_is_counted(make: MakeServer) -> None:
    servers = [make(i, 2) for i in range(2)]
    client = connect(*([s] for s in servers), on_failure="degrade", retries=0)
    check(client.get(TABLE, KEYS))
    servers[1].stop()
    lookup = client.get(TABLE, KEYS)
    assert lookup.degraded == (1,)
    from_living = lookup.rows.any(axis=1)
    assert 0 < np.count_nonzero(from_living) < np.count_nonzero(expected_found(KEYS))
    np.testing.assert_array_equal(lookup.rows[from_living], expected_rows(1, KEYS)[from_living])
    np.testing.assert_array_equal(lookup.found, from_living)
    stats = client.stats()
    assert (stats["degraded_calls"], stats["degraded_keys"]) == (1, KEYS.size - servers[0].keys_seen // 2)


def test_settings_that_are_wrong_do_not_degrade(make: MakeServer) -> None:
    server = make()
    client = connect([server], on_failure="degrade")
    client.connect()
    server.behave = "wrong_shard"
    with pytest.raises(FailedPrecondition):
        client.get(TABLE, KEYS)


def test_a_slow_replica_is_overtaken_by_a_backup_request(make: MakeServer) -> None:
    slow, fast = make(), make()
    client = connect([slow, fast], backup_ms=30, eject_after=100)
    client.connect()
    slow.behave = "hang"  # until the end
    for _ in range(6):
        check(client.get(TABLE, KEYS))
    stats = client.stats()
    assert stats["backups"] >= stats["backups_won"] >= 1


def test_a_replica_that_hangs_is_left_out_and_comes_back(make: MakeServer) -> None:
    hung, good = make(), make()
    client = connect([hung, good], backup_ms=20, eject_after=2, eject_ms=100)
    client.connect()
    hung.behave = "hang"
    while client.stats()["ejections"] == 0:
        check(client.get(TABLE, KEYS))
    hung.behave = "ok"
    while client.stats()["returns"] == 0:
        time.sleep(0.02)
    while hung.seen["ok"] < 2:
        check(client.get(TABLE, KEYS))


def test_a_restarted_server_is_found_again(make: MakeServer) -> None:
    server = make()
    client = connect([server], retries=2)
    check(client.get(TABLE, KEYS))
    server.stop()
    with pytest.raises(Unavailable):
        client.get(TABLE, KEYS)
    make(port=server.port)
    check(client.get(TABLE, KEYS))


def test_overload_says_when_to_come_back(make: MakeServer) -> None:
    server = make()
    client = connect([server], retries=0)
    client.connect()
    server.behave = "overloaded"
    with pytest.raises(Unavailable, match="queue is full") as caught:
        client.get(TABLE, KEYS)
    assert caught.value.retry_after_s == RETRY_AFTER_MS / 1000


def test_the_deadline_holds_over_all_retries(make: MakeServer) -> None:
    servers = [make(), make()]
    client = connect(servers, retries=10, backup_ms=20)
    client.connect()
    for server in servers:
        server.behave = "hang"
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded) as caught:
        client.get(TABLE, KEYS, timeout_s=0.15)
    assert 0.14 < time.monotonic() - started < 30
    assert all(s.address in str(caught.value) for s in servers)


def test_a_server_that_accepts_and_says_nothing_is_given_up_soon(make: MakeServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        good = make()
        settings = CubeSettings(
            shards=((f"127.0.0.1:{silent.getsockname()[1]}", good.address),),
            timeout_ms=100_000,
            connect_ms=200,
            backup_ms=0,
            retries=63,
        )
        with CubeClient(settings) as client:
            check(client.get(TABLE, KEYS))


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


def test_a_wrong_shard_order_is_refused_before_any_lookup(make: MakeServer) -> None:
    servers = [make(i, 2) for i in range(2)]
    client = connect([servers[1]], [servers[0]])
    with pytest.raises(FailedPrecondition, match=r"listed as shard (\d) of 2, holds shard (?!\1)\d of 2"):
        client.get(TABLE, KEYS)
    assert not any(s.seen["ok"] for s in servers)
    with pytest.raises(FailedPrecondition, match="in order"):
        connect([servers[0]]).connect()


def test_shards_with_rows_of_different_widths_are_refused(make: MakeServer) -> None:
    servers = [make(i, 2) for i in range(2)]
    servers[1].dim = 5
    with pytest.raises(FailedPrecondition, match="other rows"):
        connect(*([s] for s in servers)).get(TABLE, KEYS)


def test_tokens(make: MakeServer, tmp_path: Path) -> None:
    server = make(token="an open secret 1")
    check(connect([server], token="an open secret 1").get(TABLE, KEYS))
    write_token(tmp_path / "token", "an open secret 1")
    check(connect([server], token_file=str(tmp_path / "token")).get(TABLE, KEYS))
    for wrong in ("", "An open secret 1", "an open secret 12"):
        with pytest.raises(Unauthorized, match=server.address):
            connect([server], token=wrong).get(TABLE, KEYS)
    with pytest.raises(NotFound, match="token file"):
        connect([server], token_file=str(tmp_path / "none"))


def test_a_server_of_another_protocol_is_refused(make: MakeServer) -> None:
    server = make()
    server.protocol = 2
    with pytest.raises(FailedPrecondition, match="protocol 2"):
        connect([server]).get(TABLE, KEYS)


@pytest.mark.parametrize("report", [b"no json", b"[]", b"{}", b'{"models": [{"name": "ctr"}]}', b'{"models": 3}'])
def test_a_description_that_makes_no_sense_is_corruption(make: MakeServer, report: bytes) -> None:
    server = make()
    server.report_json = report
    with pytest.raises(Corruption, match=server.address):
        connect([server]).get(TABLE, KEYS)


def test_bytes_behind_an_answer_cost_the_connection_not_the_next_call(make: MakeServer) -> None:
    server = make()
    server.behave = "trailing"
    client = connect([server], retries=3)
    for _ in range(5):
        check(client.get(TABLE, KEYS))


def test_unknown_tables_are_named_with_those_there_are(make: MakeServer) -> None:
    client = connect([make()])
    with pytest.raises(NotFound, match="'ctr/nope'; there are ctr/embedding, ctr/linear"):
        client.get("ctr/nope", KEYS)
    with pytest.raises(ConfigError, match="its name lacks the model"):
        client.get("embedding", KEYS)


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


def test_a_forked_child_opens_connections_of_its_own(make: MakeServer) -> None:
    server = make()
    client = connect([server])
    check(client.get(TABLE, KEYS))
    before = server.connections
    child = os.fork()
    if child == 0:
        try:
            check(client.get(TABLE, KEYS))
            os._exit(0)
        except BaseException:
            os._exit(1)
    check(client.get(TABLE, KEYS))
    assert os.waitpid(child, 0)[1] == 0
    check(client.get(TABLE, KEYS))
    assert server.connections == before + 1


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
