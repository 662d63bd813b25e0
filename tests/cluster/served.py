"""Servers without agents and transfer: versions whose every row tells version and feasign, put beside the servers and
activated by hand. For stories about clients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elasticctr.cube.build.builder import BuildOptions, Target, build_tables
from elasticctr.cube.client import CubeClient
from elasticctr.cube.lookup import Lookup
from elasticctr.cube.settings import CubeSettings
from elasticctr.versions.interchange.rows import RowInfo
from tests.cluster.harness import TOKEN, Cluster, Instance, wait_until

DIM = 4
ROWS = 4000
TABLE = "ctr/embedding"


def rows_of(version: int, feasigns: NDArray[np.uint64]) -> NDArray[np.float32]:
    """The table's rows in a version; feasigns from ROWS on have none."""
    values = feasigns.astype(np.float32)
    rows = np.stack([np.full_like(values, version), values, values * 0.5 + version, -values], axis=1)
    rows[feasigns >= ROWS] = 0
    return rows


class Rows:
    """All rows of one version, as the builder takes them."""

    def __init__(self, version: int) -> None:
        self.info = RowInfo("fp32", DIM, 4 * DIM)
        self.count = ROWS
        self._version = version

    def blocks(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint8]]]:
        feasigns = np.arange(ROWS, dtype=np.uint64)
        yield feasigns, rows_of(self._version, feasigns).view(np.uint8)

    def gone(self) -> Iterator[NDArray[np.uint64]]:
        return iter(())


def build_version(
    out: Path,
    version: int,
    shards: int,
    tables: tuple[str, ...] = ("embedding",),
    model: str = "ctr",
    encoding: Literal["fp16", "int8"] | None = None,
) -> Path:
    """`out`/`model`/`version`, as `elasticctr cube build` makes it."""
    sources: dict[str, Any] = {table: Rows(version) for table in tables}
    build_tables(sources, out, Target(model, version), BuildOptions(shards=shards, threads=1, encoding=encoding))
    return out / model / str(version)


def check_rows(lookup: Lookup, feasigns: NDArray[np.uint64]) -> None:
    """Every row is of the version the answer names."""
    np.testing.assert_array_equal(lookup.found, feasigns < ROWS)
    np.testing.assert_array_equal(lookup.rows, rows_of(lookup.version, feasigns))


class Served(Cluster):
    """Shards × replicas of servers alone."""

    def put_version(self, version: int) -> None:
        """Into every server's data directory, not loaded yet."""
        built = build_version(self.root / "builds", version, self.shards)
        for one in self.instances:
            place = one.data / "ctr" / str(version)
            place.mkdir(parents=True)
            for file in (built / f"shard-{one.shard:04d}-of-{self.shards:04d}").iterdir():
                os.link(file, place / file.name)

    def start_servers(self, *, newest: bool) -> None:
        """Starts all of them; with `newest`, they answer from their newest version."""
        for one in self.instances:
            one.start_server(*(("--activate", "newest") if newest else ()))
        for one in self.instances:
            if newest:
                self.wait_ready(one)
            else:
                wait_until(lambda one=one: self.answers(one.server, one.server_url), f"server {one.name}")

    def wait_ready(self, one: Instance) -> None:
        def is_ready() -> bool:
            assert one.server is not None
            one.server.check_running()
            return bool(one.server_status()["ready"])

        wait_until(is_ready, f"server {one.name} ready", 60)

    def load(self, version: int) -> None:
        for one in self.instances:
            self.ask(one.server_url, "/v1/load", {"model": "ctr", "version": version})
        for one in self.instances:
            wait_until(lambda one=one: version in self.ready_versions(one), f"{version} loaded on {one.name}")

    def ready_versions(self, one: Instance) -> set[int]:
        models = one.server_status()["models"]
        return {v["version"] for model in models for v in model["versions"] if v["state"] == "ready"}

    def activate(self, version: int) -> None:
        for one in self.instances:
            self.ask(one.server_url, "/v1/activate", {"model": "ctr", "version": version})

    def retire(self, version: int) -> None:
        for one in self.instances:
            self.ask(one.server_url, "/v1/retire", {"model": "ctr", "version": version})

    def make_client(self, **settings: Any) -> CubeClient:
        shards = [
            [f"127.0.0.1:{one.server_port}" for one in self.instances if one.shard == shard]
            for shard in range(self.shards)
        ]
        return CubeClient(
            CubeSettings.model_validate({"shards": shards, "timeout_ms": 60_000, "connect_ms": 10_000, **settings}),
            TOKEN,
        )
