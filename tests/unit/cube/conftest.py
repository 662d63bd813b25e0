"""Fake cube servers, and files that nobody waits for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.unit.cube.clients import MakeServer
from tests.unit.cube.fake_server import FakeServer


@pytest.fixture
def make() -> Iterator[MakeServer]:
    servers: list[FakeServer] = []

    def make_one(*args: object, **settings: object) -> FakeServer:
        servers.append(FakeServer(*args, **settings))  # type: ignore[arg-type]
        return servers[-1]

    yield make_one
    for server in servers:
        server.stop()


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug in these tests, and on a busy disk most of their time would be waiting for it."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
