"""Servers that misbehave: each failure has its type, and no failure has rows."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest
from tests.unit.cube.clients import KEYS, TABLE, MakeServer, check, connect
from tests.unit.cube.fake_server import RETRY_AFTER_MS, expected_found, expected_rows

from elasticctr.cube.client import CubeClient
from elasticctr.cube.settings import CubeSettings
from elasticctr.errors import (
    Corruption,
    DataError,
    DeadlineExceeded,
    ElasticCTRError,
    FailedPrecondition,
    InternalError,
    NotFound,
    Unavailable,
)


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


def test_bytes_behind_an_answer_cost_the_connection_not_the_next_call(make: MakeServer) -> None:
    server = make()
    server.behave = "trailing"
    client = connect([server], retries=3)
    for _ in range(5):
        check(client.get(TABLE, KEYS))
