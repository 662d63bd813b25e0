"""A client of fake servers, and what it must answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tests.unit.cube.fake_server import FakeServer, expected_found, expected_rows

from elasticctr.cube.client import CubeClient
from elasticctr.cube.lookup import Lookup
from elasticctr.cube.settings import CubeSettings

KEYS = np.arange(1, 301, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
TABLE = "ctr/embedding"
MakeServer = Callable[..., FakeServer]


def connect(*shards: list[FakeServer], token: str | None = None, **settings: object) -> CubeClient:
    addresses = [[replica.address for replica in replicas] for replicas in shards]
    defaults: dict[str, object] = {"timeout_ms": 60_000, "connect_ms": 60_000, "backup_ms": 0, "retries": 1}
    return CubeClient(CubeSettings.model_validate(defaults | {"shards": addresses} | settings), token)


def check(lookup: Lookup, version: int = 1, keys: np.ndarray = KEYS) -> None:
    assert lookup.version == version
    assert lookup.degraded == ()
    np.testing.assert_array_equal(lookup.found, expected_found(keys))
    np.testing.assert_array_equal(lookup.rows, expected_rows(version, keys))
