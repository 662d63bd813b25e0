"""Native pservers inside the test's process, and clients of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elasticctr import _native
from elasticctr.ps.trainer.client import PsClient
from elasticctr.table import TableSettings
from elasticctr.table.table import to_native

JOB = 77
BUILD = "test"


class LocalPservers:
    """One pserver per shard, each on a port of its own that it keeps over restarts."""

    def __init__(
        self, tables: Sequence[TableSettings], shards: int, dense_floats: int = 0, token: str = "", job: int = JOB
    ) -> None:
        self.tables, self.shards, self.dense_floats, self.token, self.job = tables, shards, dense_floats, token, job
        self.servers = [self._make(shard, 0) for shard in range(shards)]
        self.ports = [server.port for server in self.servers]
        for server in self.servers:
            server.set_ready()

    def _make(self, shard: int, port: int) -> _native.PServer:
        server = _native.PServer(
            shard=shard,
            shards=self.shards,
            tables=[to_native(table) for table in self.tables],
            dense_floats=self.dense_floats,
            dense_on_first=False,
            dense_optimizer=_native.DenseOptimizerSettings(kind=_native.DenseOptimizerKind.sgd, learning_rate=0.5),
            host="127.0.0.1",
            port=port,
            unix_path="",
            token=self.token,
            job=self.job,
            identity="{}",
            digest="digest",
            build=BUILD,
            strategy="async",
            is_standby=False,
            threads=1,
            group_timeout_ms=2000,
            max_buffered_bytes=1 << 30,
            request_timeout_s=60,
        )
        server.start()
        return server

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.ports]

    def client(self, **options: Any) -> PsClient:
        given: dict[str, Any] = {
            "job": self.job,
            "attach": {
                "role": "trainer",
                "id": "1",
                "build": BUILD,
                "identity": "{}",
                "digest": "digest",
                "strategy": "async",
            },
            "tables": self.tables,
            "dense_floats": self.dense_floats,
            "token": self.token,
            "trainer": 1,
            "timeout_s": 60.0,
        }
        return PsClient(options.pop("addresses", self.addresses), **(given | options))

    def stop(self, shard: int) -> None:
        self.servers[shard].stop(0.0)

    def restart(self, shard: int, directory: Path | None = None) -> None:
        """A new process in the old one's place, with what was saved, or empty."""
        self.servers[shard] = self._make(shard, self.ports[shard])
        self.servers[shard].load("" if directory is None else str(directory))

    def close(self) -> None:
        for server in self.servers:
            server.stop(0.0)
