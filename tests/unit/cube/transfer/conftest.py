"""A transfer over real agents and fake servers, driven turn by turn."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.fakes import TOKEN, FakeServer, make_build

from elasticctr.compat.paddle_cube.transfer_api import transfer_routes
from elasticctr.config import parse_settings
from elasticctr.config.tls import TlsSettings
from elasticctr.cube.agent.process import AgentOptions, AgentProcess
from elasticctr.cube.transfer.process import TransferOptions, TransferProcess
from elasticctr.cube.transfer.rollout import ModelRollout
from elasticctr.cube.transfer.settings import TransferSettings
from elasticctr.errors import Corruption, NotFound
from elasticctr.net.access import Tokens, write_token
from elasticctr.net.client import Peer
from elasticctr.versions.feed import Announcement, Link, join_links


class FakeFeed:
    """Versions published in memory."""

    def __init__(self) -> None:
        self.parents: dict[int, int] = {}
        self.events: list[Announcement] = []
        self.pins: list[list[int]] = []
        self.used: set[int] = set()  # pinned by prediction servers

    def publish(self, version: int, parent: int = 0) -> None:
        self.parents[version] = parent
        self._announce(version, False)

    def rollback(self, version: int) -> None:
        self._announce(version, True)

    def wanted(self, model: str) -> Announcement | None:
        return self.events[-1] if self.events else None

    def chain(self, model: str, version: int) -> list[Link]:
        links: list[Link] = []
        while version:
            if version not in self.parents:
                raise NotFound(f"version {version} was never published")
            links.insert(0, Link(version, self.parents[version], identity_of(version), 10))
            version = self.parents[version]
        return join_links(links)

    def pin(self, model: str, name: str, versions: list[int], ttl_s: float) -> None:
        self.pins.append(versions)

    def pinned(self, model: str) -> set[int]:
        return self.used

    def _announce(self, version: int, is_rollback: bool) -> None:
        key = f"{len(self.events) + 1}:{version}"
        self.events.append(Announcement(key, version, identity_of(version), is_rollback))


class FakeBuilder:
    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.built: list[tuple[int, bool]] = []
        self.corrupt: set[int] = set()

    def build(self, model: str, link: Link, out: Path, *, compact: bool, watch: Any) -> None:
        if link.version in self.corrupt:
            raise Corruption(f"version {link.version}: a part does not match its manifest")
        self.built.append((link.version, compact))
        make_build(out, model, link.version, parent=0 if compact else link.parent, shards=self.shards, bytes_each=5000)


def identity_of(version: int) -> str:
    return hashlib.sha256(str(version).encode()).hexdigest()


class Bed:
    """Shards × replicas of real agents over fake servers, and the parts of a transfer, driven turn by turn."""

    def __init__(
        self,
        root: Path,
        shards: int = 2,
        replicas: int = 2,
        tls: TlsSettings | None = None,
    ) -> None:
        self.root, self.shards, self.replicas, self.tls = root, shards, replicas, tls
        write_token(root / "token", TOKEN)
        self.servers: list[FakeServer] = []
        self.agents: list[AgentProcess] = []
        for number in range(shards * replicas):
            data = root / f"data-{number}"
            data.mkdir()
            server = FakeServer(data)
            options = AgentOptions(server.url, data, port=0, tokens=Tokens(TOKEN), watch_s=0.5, tls=tls)
            agent = AgentProcess(options)
            threading.Thread(target=agent.run, daemon=True).start()
            self.servers.append(server)
            self.agents.append(agent)
        self.feed, self.builder = FakeFeed(), FakeBuilder(shards)
        self.processes: list[TransferProcess] = []

    def settings(self, state: str = "state", **changes: Any) -> TransferSettings:
        urls = [f"{agent.web.scheme}://127.0.0.1:{agent.web.port}" for agent in self.agents]
        patience = {"call_s": 30.0, "check_s": 0.5, "first_pause_s": 0.05, "prepare_s": 60.0, "activate_s": 10.0}
        base: dict[str, Any] = {
            "repository": str(self.root),
            "models": ["ctr"],
            "state": str(self.root / state),
            "token_file": str(self.root / "token"),
            "shards": [
                [{"agent": urls[s * self.replicas + r]} for r in range(self.replicas)] for s in range(self.shards)
            ],
            "poll_s": 0.05,
            "require": {"straggler_s": 10.0},
            "patience": patience | changes.pop("patience", {}),
        }
        if self.tls:
            base["tls"] = self.tls.model_dump()
        return parse_settings(TransferSettings, base | changes, "test")

    def transfer(self, state: str = "state", **changes: Any) -> tuple[TransferProcess, ModelRollout]:
        """A transfer whose turns the test makes."""
        process = TransferProcess(
            TransferOptions(
                self.settings(state, **changes),
                "127.0.0.1",
                0,
                open_feed=lambda *_: (self.feed, self.builder),
                routes=transfer_routes,
            )
        )
        self.processes.append(process)
        threading.Thread(target=process.web.run, daemon=True).start()
        process.fleet.start()
        process.fleet.refresh()
        return process, process.models["ctr"]

    def peer(self, process: TransferProcess) -> Peer:
        return Peer(process.address, TOKEN)

    def crash(self, process: TransferProcess) -> None:
        """Leaves what a killed transfer leaves: its files, and an unexpired lease."""
        process.fleet._stop.set()
        for rollout in process.models.values():
            rollout.stop()
        process.web.stop()
        process._state.close()
        self.processes.remove(process)

    def active(self) -> list[int]:
        return [server.active.get("ctr", 0) for server in self.servers]

    def turn_until(self, rollout: ModelRollout, check: Callable[[], bool], timeout_s: float = 80.0) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not check():
            assert time.monotonic() < deadline_s, (rollout.trouble, rollout.journal)
            rollout.turn()
            rollout.wait(0.05)

    def stop(self) -> None:
        for process in list(self.processes):
            self.crash(process)
        for agent in self.agents:
            agent.stop()
        for server in self.servers:
            server.stop()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.stop()
