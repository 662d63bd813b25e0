"""A pserver alone against the table inside it: rows pulled and pushed per second of one core.

The pserver is a separate process with one event loop; this process generates the load natively and reads the pserver's
CPU time from the system. The table does in this process what a trainer without pservers does for the same batches.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.config import parse_settings
from elasticctr.ps.trainer.client import PsClient, PushHead
from elasticctr.table import AdamSettings, Layout, Lookup, SegmentSettings, SlotTarget, Table, TableSettings
from elasticctr.table.table import to_native
from elasticctr.train.cluster_settings import ClusterSettings
from ps_runs import TICK_S, cpu_s

SLOTS, DIM = 26, 9
JOB = 5
AHEAD = 4  # requests in flight
PULLS_PER_DENSE = 2  # how often a trainer requests dense parameters with its default staleness

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Alone:
    """Million distinct rows per CPU second, and the wire's bytes per sample with and without dense parameters."""

    table_pull: float
    table_push: float
    pserver_pull: float
    pserver_push: float
    row_bytes: float
    bytes: float


def _settings() -> TableSettings:
    return TableSettings(segments=(SegmentSettings(dim=DIM, optimizer=AdamSettings()),))


class Pserver:
    """A pserver process on a Unix socket or, without a path, on a port."""

    def __init__(self, dense_floats: int, unix_path: str) -> None:
        about = {"dense_floats": dense_floats, "unix_path": unix_path, "table": _settings().model_dump(mode="json")}
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(about)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            raise SystemExit(f"the pserver exited with status {self._process.wait()}")
        self.address = f"unix:{unix_path}" if unix_path else f"127.0.0.1:{port}"

    def cpu_s(self) -> float:
        return cpu_s(self._process.pid)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _serve(about: dict[str, Any]) -> None:
    _native.set_threads(1)
    server = _native.PServer(
        shard=0,
        shards=1,
        tables=[to_native(parse_settings(TableSettings, about["table"], "table"))],
        dense_floats=about["dense_floats"],
        dense_on_first=False,
        dense_optimizer=_native.DenseOptimizerSettings(kind=_native.DenseOptimizerKind.adam, learning_rate=1e-3),
        host="127.0.0.1",
        port=0,
        unix_path=about["unix_path"],
        token="",
        job=JOB,
        identity="{}",
        digest="",
        build="",
        strategy="async",
        is_standby=False,
        threads=1,
        group_timeout_ms=1000,
        max_buffered_bytes=1 << 30,
        request_timeout_s=60,
    )
    server.start()
    server.set_ready()
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop(1.0)


def connect(server: Pserver, dense_floats: int) -> PsClient:
    attach = {"role": "trainer", "id": 1, "build": "", "identity": "{}", "strategy": "async"}
    return PsClient(
        [server.address],
        job=JOB,
        attach=attach,
        tables=[_settings()],
        dense_floats=dense_floats,
        trainer=1,
        dense_gradients_as=ClusterSettings().dense_encoding,
    )


class Load:
    """The same batches for all contestants."""

    def __init__(self, ids: NDArray[np.int64], size: int) -> None:
        self.table = Table(_settings())
        self.layout: Layout = self.table.layout([SlotTarget(s, {"embedding": s * DIM}) for s in range(SLOTS)])
        offsets = np.arange(SLOTS * size + 1, dtype=np.int32)
        self.lookups: list[Lookup] = [
            self.layout.lookup(np.ascontiguousarray(ids[i : i + size].T).reshape(-1).astype(np.uint64), offsets, size)
            for i in range(0, len(ids) - size + 1, size)
        ]
        self.rows = sum(lookup.distinct for lookup in self.lookups)
        self.samples = size * len(self.lookups)
        self.flat: Floats = np.zeros((size, SLOTS * DIM), dtype=np.float32)
        self.gradient = np.random.default_rng(1).normal(scale=1e-3, size=self.flat.shape).astype(np.float32)

    def pull_table(self) -> None:
        for lookup in self.lookups:
            self.table.find(lookup, insert=True)
            self.table.pull(lookup, self.layout, [self.flat])

    def push_table(self) -> None:
        for lookup in self.lookups:
            self.table.push(lookup, self.layout, [self.gradient])

    def pull(self, client: PsClient, wants_dense: bool = False) -> None:
        fetches = []
        for lookup in self.lookups:
            fetches.append(client.start_pull([lookup], True, wants_dense))
            if len(fetches) == AHEAD:
                fetches.pop(0).wait(60_000)
        for fetch in fetches:
            fetch.wait(60_000)

    def push(self, client: PsClient, chunk: int, dense: Floats | None = None) -> None:
        for number, lookup in enumerate(self.lookups):
            head = PushHead(chunk=chunk, from_batch=number, to_batch=number + 1, weight=len(self.flat))
            client.push(head, [lookup], [self.layout], [[self.gradient]], dense)
            client.wait_pushes(AHEAD, 60)
        client.wait_pushes(0, 60)


def _rate(rows: int, clock: Callable[[], float], work: Callable[[], None]) -> float:
    began = clock()
    work()
    return rows / 1e6 / max(clock() - began, TICK_S)  # less than a tick cannot be measured


def measure(ids: NDArray[np.int64], size: int, dense_floats: int, rounds: int, *, uses_unix: bool) -> Alone:
    """Interleaved rounds over all batches; medians."""
    _native.set_threads(1)
    load = Load(ids, size)
    with tempfile.TemporaryDirectory() as folder:
        server = Pserver(dense_floats, f"{folder}/ps" if uses_unix else "")
        try:
            client = connect(server, dense_floats)
            load.pull_table()
            load.push_table()
            load.pull(client)
            load.push(client, 0)
            rates: list[Sequence[float]] = []
            before = client.stats()
            for number in range(1, rounds + 1):
                rates.append(
                    (
                        _rate(load.rows, time.process_time, load.pull_table),
                        _rate(load.rows, time.process_time, load.push_table),
                        _rate(load.rows, server.cpu_s, lambda: load.pull(client)),
                        _rate(load.rows, server.cpu_s, lambda n=number: load.push(client, n)),  # type: ignore[misc]
                    )
                )
            after = client.stats()
            row_bytes = _bytes(before, after) / load.samples / rounds
            dense = np.zeros(dense_floats, dtype=np.float32)
            client.set_dense(dense)
            before = client.stats()
            load.pull(client, wants_dense=True)
            load.push(client, rounds + 1, dense)
            # They are new only in the first round.
            news = 4 * dense_floats * (len(load.lookups) / PULLS_PER_DENSE - 1)
            all_bytes = (_bytes(before, client.stats()) + news) / load.samples
        finally:
            server.close()
    table_pull, table_push, pull, push = (statistics.median(column) for column in zip(*rates, strict=True))
    return Alone(table_pull, table_push, pull, push, row_bytes, all_bytes)


def _bytes(before: dict[str, Any], after: dict[str, Any]) -> float:
    return sum(float(after[name] - before[name]) for name in ("sent_bytes", "received_bytes"))


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
