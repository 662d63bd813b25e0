"""A replica is killed under load, then its whole shard: clients miss the first and get an error for the second."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from elasticctr.cube.client import CubeClient
from elasticctr.errors import Unavailable
from tests.cluster.harness import wait_until
from tests.cluster.served import ROWS, TABLE, Served, check_rows, rows_of

KEYS = np.arange(ROWS + 50, dtype=np.uint64)


class Asking:
    """Threads that look up random feasigns and check every row."""

    def __init__(self, client: CubeClient, threads: int = 4) -> None:
        self.failures: list[BaseException] = []
        self.versions: set[int] = set()
        self.calls = 0
        self._client = client
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(seed,)) for seed in range(threads)]

    def __enter__(self) -> Asking:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not self._stopping.is_set() and not self.failures:
            try:
                keys = rng.choice(KEYS, 100)
                lookup = self._client.get(TABLE, keys)
                check_rows(lookup, keys)
                self.versions.add(lookup.version)
                self.calls += 1
            except BaseException as e:
                self.failures.append(e)

    def wait_calls(self, count: int) -> None:
        until = self.calls + count
        wait_until(lambda: self.calls >= until or self.failures, f"{count} more lookups")


def test_a_killed_replica_costs_nothing_and_a_killed_shard_is_typed(tmp_path: Path) -> None:
    with Served(tmp_path, shards=2, replicas=2) as cluster:
        cluster.put_version(1)
        cluster.start_servers(newest=True)
        client = cluster.make_client(eject_ms=100)
        victim, twin = cluster.instance(1, 0), cluster.instance(1, 1)
        with Asking(client) as asking:
            asking.wait_calls(50)
            assert victim.server is not None and twin.server is not None
            victim.server.kill()
            asking.wait_calls(200)
            victim.start_server("--activate", "newest")
            cluster.wait_ready(victim)
            wait_until(lambda: client.stats()["returns"] > 0 or not _is_ejected(client, victim.server_port), "return")
            before = _requests(client, victim.server_port)
            asking.wait_calls(100)
        assert asking.failures == []
        assert asking.versions == {1}
        assert _requests(client, victim.server_port) > before

        victim.server.kill()
        twin.server.kill()
        with pytest.raises(Unavailable, match="shard 1 of 2") as caught:
            client.get(TABLE, KEYS)
        assert all(f"127.0.0.1:{one.server_port}" in str(caught.value) for one in (victim, twin))

        degrading = cluster.make_client(on_failure="degrade", retries=1)
        lookup = degrading.get(TABLE, KEYS)
        assert lookup.degraded == (1,)
        assert 0 < np.count_nonzero(lookup.found) < ROWS
        check_rows_of_living(lookup.rows, lookup.found)
        assert degrading.stats()["degraded_calls"] == 1

        victim.start_server("--activate", "newest")
        cluster.wait_ready(victim)
        check_rows(client.get(TABLE, KEYS), KEYS)


def check_rows_of_living(rows: np.ndarray, found: np.ndarray) -> None:
    np.testing.assert_array_equal(rows[found], rows_of(1, KEYS)[found])
    assert not rows[~found].any()


def _replica(client: CubeClient, port: int) -> dict[str, object]:
    return next(r for r in client.stats()["replicas"] if r["address"] == f"127.0.0.1:{port}")


def _is_ejected(client: CubeClient, port: int) -> bool:
    return bool(_replica(client, port)["ejected"])


def _requests(client: CubeClient, port: int) -> int:
    return int(str(_replica(client, port)["requests"]))
