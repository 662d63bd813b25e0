"""Pservers as processes of their own, a client of them, and pushes: for the tests of pservers and standbys."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.ps.identity import build
from elasticctr.ps.trainer.client import PsClient, PushHead, RowGradients
from elasticctr.table import SegmentSettings, SgdSettings, TableSettings

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
    build=about["build"], strategy="async", is_standby=about["standby"], threads=2, group_timeout_ms=60000,
    max_buffered_bytes=1 << 30, request_timeout_s=60,
)
server.start()
if about["load"] is not None and not about["standby"]:
    server.load(about["load"])
print(server.port, flush=True)
sys.stdin.read()
server.stop(1.0)
"""


class Process:
    def __init__(
        self, shard: int, shards: int, token: str = "", load: str | None = "", is_standby: bool = False
    ) -> None:
        """`load`: a checkpoint, or nothing; None: it has to be told."""
        tables = [t.model_dump(mode="json") for t in TABLES]
        about = {"shard": shard, "shards": shards, "tables": tables, "dense": DENSE, "token": token, "job": JOB}
        about |= {"build": build(), "load": load, "standby": is_standby}
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SERVER,
                json.dumps(about),
            ],
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
        assert self._process.wait(60) == 0

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # until every thread stands

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)


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
            "timeout_s": 60,
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


def set_group(processes: list[Process], members: list[int], incarnation: int = 1) -> None:
    for process in processes:
        host, _, port = process.address.partition(":")
        with socket.create_connection((host, int(port)), 60) as connection:
            body = struct.pack(f"<II{len(members)}Q", len(members), 0, *members)
            header = struct.pack("<4sIQQQIBBH", b"\xecWC\x01", len(body), 1, incarnation, JOB, 0, 20, 0, 0)
            connection.sendall(header + body)
            answer = connection.recv(40)
            assert len(answer) == 40 and answer[37] == 0, answer
