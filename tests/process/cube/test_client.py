"""A client that is forked opens connections of its own."""

from __future__ import annotations

import os

import pytest
from tests.unit.cube.clients import KEYS, TABLE, check, connect
from tests.unit.cube.fake_server import FakeServer


def test_a_forked_child_opens_connections_of_its_own(request: pytest.FixtureRequest) -> None:
    server = FakeServer()
    request.addfinalizer(server.stop)
    client = connect([server])
    check(client.get(TABLE, KEYS))
    before = server.connections
    child = os.fork()
    if child == 0:
        try:
            check(client.get(TABLE, KEYS))
            os._exit(0)
        except BaseException:
            os._exit(1)
    check(client.get(TABLE, KEYS))
    assert os.waitpid(child, 0)[1] == 0
    check(client.get(TABLE, KEYS))
    assert server.connections == before + 1
