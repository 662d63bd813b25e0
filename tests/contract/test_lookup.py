"""One suite for everything that answers lookups: files in this process, a client, an asyncio client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cluster.served import DIM, ROWS, build_version, check_rows, rows_of

from elasticctr.cube.client import AsyncCubeClient, CubeClient
from elasticctr.cube.local import LocalCube
from elasticctr.cube.lookup import Lookup
from elasticctr.cube.settings import CubeSettings
from elasticctr.errors import DataError, NotFound

Get = Callable[..., Lookup]
TABLE = "ctr/embedding"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 1 and 2 of two tables, in two shards; 2 is the newest."""
    out = tmp_path_factory.mktemp("builds")
    for version in (1, 2):
        build_version(out, version, 2, ("embedding", "linear"))
    build_version(out, 1, 2, model="half", encoding="fp16")
    build_version(out, 1, 2, model="byte", encoding="int8")
    return out


@pytest.fixture(scope="module")
def servers(builds: Path) -> Iterator[list[str]]:
    started, addresses = [], []
    try:
        for shard in range(2):
            command = [sys.executable, "-m", "elasticctr", "cube", "server", "--data", str(builds), "--port", "0"]
            command += ["--shard", f"{shard}/2", "--activate", "newest", "--json"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            started.append(process)
            assert process.stdout is not None
            addresses.append(f"127.0.0.1:{json.loads(process.stdout.readline())['port']}")
        with CubeClient(
            CubeSettings(shards=tuple((a,) for a in addresses), timeout_ms=60_000, connect_ms=60_000)
        ) as client:
            client.connect(60)
        yield addresses
    finally:
        for process in started:
            process.kill()
            process.wait(60)


@pytest.fixture(params=["LocalCube", "CubeClient", "Client with a cache", "AsyncCubeClient"])
def get(request: pytest.FixtureRequest, builds: Path) -> Iterator[Get]:
    if request.param == "LocalCube":
        yield LocalCube(builds).get
        return
    addresses = request.getfixturevalue("servers")
    cache_bytes = 1 << 20 if "cache" in request.param else 0
    settings = CubeSettings(
        shards=tuple((a,) for a in addresses), timeout_ms=60_000, connect_ms=60_000, cache_bytes=cache_bytes
    )
    if request.param != "AsyncCubeClient":
        with CubeClient(settings) as client:
            yield client.get
        return

    def get_async(*args: Any, **kwargs: Any) -> Lookup:
        async def ask() -> Lookup:
            async with AsyncCubeClient(settings) as client:
                return await client.get(*args, **kwargs)

        return asyncio.run(ask())

    yield get_async


def test_rows_come_in_the_order_asked_with_misses_marked(get: Get) -> None:
    rng = np.random.default_rng(3)
    for size in (1, 2, 63, 64, 65, 1000):
        feasigns = rng.integers(0, ROWS + 100, size, dtype=np.uint64)
        lookup = get(TABLE, feasigns)
        assert lookup.version == 2
        assert lookup.rows.dtype == np.float32 and lookup.rows.shape == (size, DIM)
        assert lookup.found.dtype == np.bool_
        assert lookup.degraded == ()
        assert lookup.misses == np.count_nonzero(feasigns >= ROWS)
        check_rows(lookup, feasigns)


def test_repeats_are_answered_each_time(get: Get) -> None:
    feasigns = np.tile(np.array([5, ROWS + 1, 7], np.uint64), 40)
    for _ in range(3):
        check_rows(get(TABLE, feasigns), feasigns)


def test_feasigns_over_the_signed_range_are_feasigns(get: Get) -> None:
    feasigns = np.array([2**64 - 1, 2**63, 3], np.uint64)
    assert get(TABLE, feasigns).found.tolist() == [False, False, True]


def test_a_version_is_answered_exactly_or_not_found(get: Get) -> None:
    feasigns = np.arange(200, dtype=np.uint64)
    lookup = get(TABLE, feasigns, version=2)
    assert lookup.version == 2
    check_rows(lookup, feasigns)
    with pytest.raises(NotFound, match="9"):
        get(TABLE, feasigns, version=9)


def test_tables_do_not_share_rows_and_unknown_ones_are_not_found(get: Get) -> None:
    feasigns = np.arange(50, dtype=np.uint64)
    check_rows(get("ctr/linear", feasigns), feasigns)
    for table in ("ctr/nope", "nope/embedding"):
        with pytest.raises(NotFound):
            get(table, feasigns)


def test_no_feasigns_are_an_empty_answer(get: Get) -> None:
    lookup = get(TABLE, np.empty(0, np.uint64))
    assert (lookup.rows.shape, lookup.found.shape, lookup.version) == ((0, DIM), (0,), 2)


def test_an_invalid_feasign_is_refused(get: Get) -> None:
    for wrong in (np.array([0.5]), np.zeros((2, 2), np.uint64)):
        with pytest.raises(DataError):
            get(TABLE, wrong)


def test_encoded_rows_come_as_floats(get: Get) -> None:
    feasigns = np.arange(ROWS - 100, ROWS + 20, dtype=np.uint64)
    exact = rows_of(1, feasigns)
    half, byte = get("half/embedding", feasigns), get("byte/embedding", feasigns)
    assert half.rows.dtype == byte.rows.dtype == np.float32
    np.testing.assert_array_equal(half.rows, exact.astype(np.float16).astype(np.float32))
    # A byte is a 127th of the row's largest magnitude, rounded to the nearest.
    assert (np.abs(byte.rows - exact) <= np.abs(exact).max(axis=1, keepdims=True) / 254 + 1e-3).all()
    np.testing.assert_array_equal(byte.found, feasigns < ROWS)
