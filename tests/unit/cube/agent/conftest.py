from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.fakes import TOKEN, FakeServer, FileHost, Serving, sha256_of

from elasticctr.compat.paddle_cube.agent_api import agent_routes
from elasticctr.cube.agent.agent import Agent
from elasticctr.cube.agent.app import make_agent_app
from elasticctr.cube.agent.data_directory import DataDirectory
from elasticctr.cube.agent.fetch import Fetcher, RateLimit
from elasticctr.cube.agent.server import CubeServerApi
from elasticctr.cube.agent.sources import AllowedSources
from elasticctr.net.access import Tokens
from elasticctr.net.client import Peer, make_client


class Bench:
    """An agent of shard 0 of 2, its server, and the host it fetches from."""

    def __init__(self, root: Path) -> None:
        self.data, self.builds = root / "data", root / "builds"
        self.builds.mkdir()
        self.server, self.host = FakeServer(self.data), FileHost(self.builds)
        self.sources = AllowedSources([self.host.url, str(self.builds)], make_client(TOKEN, timeout_s=60))
        self.agent = self.make_agent()
        self.serving = Serving(make_agent_app(self.agent, Tokens(TOKEN), agent_routes(self.agent)))
        self.peer = Peer(self.serving.url, TOKEN)

    def make_agent(self, rate: float | None = None, **options: Any) -> Agent:
        peer = Peer(self.server.url, TOKEN)
        return Agent(DataDirectory(self.data), CubeServerApi(peer), self.sources, Fetcher(RateLimit(rate)), **options)

    def step(self, version: int, shard: int = 0) -> dict[str, Any]:
        path = f"ctr/{version}/shard-{shard:04d}-of-0002"
        digest = sha256_of(self.builds / path / "shard.json")
        return {"version": version, "source": f"{self.host.url}/{path}", "sha256": digest}

    def request(self, version: int, *chain: int, shard: int = 0) -> dict[str, Any]:
        older = [self.step(one, shard) for one in chain]
        return {"model": "ctr", "shard": shard, "shards": 2, **self.step(version, shard), "chain": older}

    def stop(self) -> None:
        self.agent.jobs.cancel()
        for one in (self.serving, self.server, self.host):
            one.stop()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests need no durability, and on a busy disk they would spend most of their time on it."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
