"""A pserver as its own process: what it learns from pushes, what it refuses, how it is saved, loaded and stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.errors import FailedPrecondition, Unauthorized
from elasticctr.ps.client import CursorError, GroupMode, PsClient, PushHead, RowGradients
from elasticctr.ps.identity import build
from elasticctr.table import SegmentSettings, SgdSettings, Table, TableSettings

DIM = 4
TABLES = (
    TableSettings(name="main", segments=[SegmentSettings(name="embedding", dim=DIM, optimizer=SgdSettings())]),
    TableSettings(name="wide", segments=[SegmentSettings(name="linear", dim=1)]),
)
DENSE = 100
JOB = 77

SERVER = """
import json, sys, time
from elasticctr import _native
from elasticctr.table import TableSettings
from elasticctr.table.table import to_native
from elasticctr.config import parse_settings
about = json.loads(sys.argv[1])
server = _native.PServer(
    shard=about["shard"], shards=about["shards"],
    tables=[to_native(parse_settings(TableSettings, t, "table")) for t in about["tables"]],
    dense_floats=about["dense"], dense_on_first=False,
    dense_optimizer=_native.DenseOptimizerSettings(kind=_native.DenseOptimizerKind.sgd, learning_rate=0.5),
    host="127.0.0.1", port=0, unix_path="", token=about["token"], job=about["job"], identity="it", digest="digest",
    build=about["build"], strategy="async", is_standby=False, threads=2, group_timeout_ms=500,
    max_buffered_bytes=1 << 30, request_timeout_s=10,
)
server.start()
server.load(about["load"])
print(server.port, flush=True)
sys.stdin.read()
server.stop(1.0)
"""


class Process:
    def __init__(self, shard: int, shards: int, token: str = "", load: str = "") -> None:
        tables = [t.model_dump(mode="json") for t in TABLES]
        about = {"shard": shard, "shards": shards, "tables": tables, "dense": DENSE, "token": token, "job": JOB}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, json.dumps({**about, "build": build(), "load": load})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the pserver did not start"
        self.address = f"127.0.0.1:{int(line)}"

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(20) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(20)


@pytest.fixture
def pair() -> Iterator[list[Process]]:
    processes = [Process(shard, 2) for shard in range(2)]
    yield processes
    for process in processes:
        process.kill()


def connect(processes: list[Process], trainer: int = 1, **more: Any) -> PsClient:
    attach = {"role": "trainer", "id": trainer, "build": build(), "identity": "it", "strategy": "async"}
    return PsClient(
        [p.address for p in processes],
        **{
            "job": JOB,
            "attach": attach,
            "tables": TABLES,
            "dense_floats": DENSE,
            "trainer": trainer,
            "timeout_s": 5,
            **more,
        },
    )


def lookups(values: NDArray[np.uint64]) -> list[_native.Lookup]:
    offsets = np.arange(len(values) + 1, dtype=np.int32)
    return [_native.Lookup(values, offsets, len(values), [0]) for _ in TABLES]


def head(first: int, **more: Any) -> PushHead:
    given = {"chunk": 9, "from_batch": first, "to_batch": first + 1, "weight": 10, "now": 3, "wants_dense": True}
    return PushHead(**{**given, **more})


def gradients(feasigns: NDArray[np.uint64], scale: float = 1.0) -> list[RowGradients]:
    n = len(feasigns)
    ones = np.ones(n, np.float32)
    return [
        RowGradients(feasigns, ones, 0 * ones, np.full((n, width), 0.125 * scale, np.float32)) for width in (DIM, 1)
    ]


def rows_of(client: PsClient, feasigns: NDArray[np.uint64], insert: bool = False) -> list[NDArray[np.float32]]:
    fetch = client.start_pull(lookups(feasigns), insert)
    return [np.array(fetch.rows(t)) for t in range(len(TABLES))]


FEASIGNS = np.array([5, 2**63 + 1, 7, 123456789, 2**64 - 1, 11, 12, 13], np.uint64)


def test_pull_push_and_dense_over_two_processes(pair: list[Process]) -> None:
    client = connect(pair)
    assert client.set_dense(np.arange(DENSE, dtype=np.float32))
    assert not client.set_dense(np.zeros(DENSE, np.float32))
    assert not rows_of(client, FEASIGNS)[0].any()
    before = rows_of(client, FEASIGNS, insert=True)
    table = Table(TABLES[0])
    table.insert_rows(FEASIGNS)
    assert np.array_equal(before[0], table.get(FEASIGNS).weights)
    client.push_rows(head(0), gradients(FEASIGNS), np.full(DENSE, 2.0, np.float32))
    client.wait_pushes()
    after = rows_of(client, FEASIGNS)
    rate = TABLES[0].segments[0].optimizer.learning_rate
    assert np.allclose(after[0], before[0] - rate * 0.125, atol=1e-7)
    out = np.zeros(DENSE, np.float32)
    client.pull_dense(out)
    assert np.array_equal(out, np.arange(DENSE, dtype=np.float32) - 1.0)
    assert client.cursors([9, 10]) == [[1, 0], [1, 0]]
    stats = [client.control(s, "stats") for s in range(2)]
    assert sum(s["rows"] for s in stats) == 2 * len(FEASIGNS)
    assert all(s["is_ready"] and s["role"] == "primary" and s["step"] == 1 for s in stats)


def test_a_push_counts_once_and_a_gap_is_refused(pair: list[Process]) -> None:
    client = connect(pair)
    rows_of(client, FEASIGNS, insert=True)
    for first in (0, 1):
        client.push_rows(head(first), gradients(FEASIGNS))
    client.wait_pushes()
    once = rows_of(client, FEASIGNS)
    other = connect(pair, trainer=2)
    other.push_rows(head(0), gradients(FEASIGNS))
    other.wait_pushes()
    assert np.array_equal(rows_of(client, FEASIGNS)[0], once[0])
    assert other.stats()["applied_before"] == 2
    other.push_rows(head(5), gradients(FEASIGNS))
    with pytest.raises(CursorError) as refused:
        other.wait_pushes()
    assert (refused.value.chunk, refused.value.cursor) == (9, 2)
    assert np.array_equal(rows_of(client, FEASIGNS)[0], once[0])


def test_gradients_that_are_not_finite_change_nothing_and_count_as_seen(pair: list[Process]) -> None:
    client = connect(pair)
    before = rows_of(client, FEASIGNS, insert=True)
    client.push_rows(head(0), gradients(FEASIGNS, scale=np.nan))
    client.wait_pushes()
    assert np.array_equal(rows_of(client, FEASIGNS)[0], before[0])
    assert client.cursors([9]) == [[1], [1]]


def test_save_and_load_by_another_number_of_pservers(pair: list[Process], tmp_path: Path) -> None:
    client = connect(pair)
    client.set_dense(np.arange(DENSE, dtype=np.float32))
    rows_of(client, FEASIGNS, insert=True)
    client.push_rows(head(0), gradients(FEASIGNS), np.ones(DENSE, np.float32))
    client.wait_pushes()
    for shard in range(2):
        saved = client.control(shard, "save", directory=str(tmp_path))
        assert saved["cursors"] == {"9": 1} and saved["shards"] == 2
    expected = rows_of(client, FEASIGNS)
    alone = Process(0, 1, load=str(tmp_path))
    try:
        moved = connect([alone])
        assert np.array_equal(rows_of(moved, FEASIGNS)[0], expected[0])
        assert moved.cursors([9]) == [[1]]
        out = np.zeros(DENSE, np.float32)
        moved.pull_dense(out)
        assert np.array_equal(out, np.arange(DENSE, dtype=np.float32) - 0.5)
        moved.control(0, "load", directory=None)
        assert not rows_of(moved, FEASIGNS)[0].any()
    finally:
        alone.kill()


def test_sync_waits_for_the_group_and_a_late_group_is_told(pair: list[Process]) -> None:
    one, two = connect(pair, trainer=1), connect(pair, trainer=2)
    before = rows_of(one, FEASIGNS, insert=True)
    _set_group(pair, [1, 2])
    one.push_rows(head(0, group=GroupMode.all), gradients(FEASIGNS))
    time.sleep(0.1)
    assert one.outstanding == 1
    two.push_rows(head(0, chunk=10, weight=30, group=GroupMode.all), gradients(FEASIGNS, scale=5.0))
    one.wait_pushes()
    two.wait_pushes()
    rate = TABLES[0].segments[0].optimizer.learning_rate
    assert np.allclose(rows_of(one, FEASIGNS)[0], before[0] - rate * 0.125 * (0.25 + 0.75 * 5), atol=1e-6)


def test_strangers_are_refused(pair: list[Process]) -> None:
    attach = {"role": "trainer", "id": 1, "build": build(), "identity": "it", "strategy": "async"}
    for other in ({**attach, "build": "0.0"}, {**attach, "identity": "another"}, {**attach, "strategy": "sync"}):
        with pytest.raises(FailedPrecondition):
            connect(pair, attach=other)
    with pytest.raises(FailedPrecondition):
        connect(pair, job=JOB + 1)
    guarded = Process(0, 1, token="a long secret")
    try:
        with pytest.raises(Unauthorized):
            connect([guarded], token="another secret")
        assert connect([guarded], token="a long secret").cursors([1]) == [[0]]
    finally:
        guarded.kill()


def _set_group(processes: list[Process], members: list[int], incarnation: int = 1) -> None:
    import socket
    import struct

    for process in processes:
        host, _, port = process.address.partition(":")
        with socket.create_connection((host, int(port)), 5) as connection:
            body = struct.pack(f"<II{len(members)}Q", len(members), 0, *members)
            header = struct.pack("<4sIQQQIBBH", b"\xecWC\x01", len(body), 1, incarnation, JOB, 0, 20, 0, 0)
            connection.sendall(header + body)
            answer = connection.recv(40)
            assert len(answer) == 40 and answer[37] == 0, answer
