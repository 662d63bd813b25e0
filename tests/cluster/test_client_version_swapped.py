"""Versions are activated, rolled back and retired under load: every answer is from one version, soon the new one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticctr.errors import NotFound
from tests.cluster.harness import wait_until
from tests.cluster.served import ROWS, TABLE, Served, check_rows
from tests.cluster.test_client_replica_killed import Asking

KEYS = np.arange(ROWS, dtype=np.uint64)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 18], ids=["no cache", "cache"])
def test_no_answer_mixes_versions(tmp_path: Path, cache_bytes: int) -> None:
    with Served(tmp_path, shards=2, replicas=2) as cluster:
        for version in (1, 2, 3):
            cluster.put_version(version)
        cluster.start_servers(newest=False)
        cluster.load(1)
        cluster.activate(1)
        client = cluster.make_client(cache_bytes=cache_bytes, refresh_ms=50)
        check_rows(client.get(TABLE, KEYS), KEYS)
        with Asking(client) as asking:
            asking.wait_calls(20)
            for version, retired in ((2, None), (3, 1), (2, 3)):
                cluster.load(version)
                cluster.activate(version)
                wait_until(lambda want=version: client.get(TABLE, KEYS[:10]).version == want, f"answers from {version}")
                if retired is not None:
                    cluster.retire(retired)
                asking.wait_calls(30)
        assert asking.failures == []
        assert asking.versions == {1, 2, 3}
        assert client.get(TABLE, KEYS, version=2).version == 2
        with pytest.raises(NotFound, match="version 1"):
            client.get(TABLE, KEYS, version=1)
