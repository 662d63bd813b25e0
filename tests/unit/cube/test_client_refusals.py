"""Servers in the wrong order, with other rows, tokens or protocols are refused before any lookup."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cube.clients import KEYS, TABLE, MakeServer, check, connect

from elasticctr.errors import ConfigError, Corruption, FailedPrecondition, NotFound, Unauthorized
from elasticctr.net.access import write_token


def test_a_wrong_shard_order_is_refused_before_any_lookup(make: MakeServer) -> None:
    servers = [make(i, 2) for i in range(2)]
    client = connect([servers[1]], [servers[0]])
    with pytest.raises(FailedPrecondition, match=r"listed as shard (\d) of 2, holds shard (?!\1)\d of 2"):
        client.get(TABLE, KEYS)
    assert not any(s.seen["ok"] for s in servers)
    with pytest.raises(FailedPrecondition, match="in order"):
        connect([servers[0]]).connect()


def test_shards_with_rows_of_different_widths_are_refused(make: MakeServer) -> None:
    servers = [make(i, 2) for i in range(2)]
    servers[1].dim = 5
    with pytest.raises(FailedPrecondition, match="other rows"):
        connect(*([s] for s in servers)).get(TABLE, KEYS)


def test_tokens(make: MakeServer, tmp_path: Path) -> None:
    server = make(token="an open secret 1")
    check(connect([server], token="an open secret 1").get(TABLE, KEYS))
    write_token(tmp_path / "token", "an open secret 1")
    check(connect([server], token_file=str(tmp_path / "token")).get(TABLE, KEYS))
    for wrong in ("", "An open secret 1", "an open secret 12"):
        with pytest.raises(Unauthorized, match=server.address):
            connect([server], token=wrong).get(TABLE, KEYS)
    with pytest.raises(NotFound, match="token file"):
        connect([server], token_file=str(tmp_path / "none"))


def test_a_server_of_another_protocol_is_refused(make: MakeServer) -> None:
    server = make()
    server.protocol = 2
    with pytest.raises(FailedPrecondition, match="protocol 2"):
        connect([server]).get(TABLE, KEYS)


@pytest.mark.parametrize("report", [b"no json", b"[]", b"{}", b'{"models": [{"name": "ctr"}]}', b'{"models": 3}'])
def test_a_description_that_makes_no_sense_is_corruption(make: MakeServer, report: bytes) -> None:
    server = make()
    server.report_json = report
    with pytest.raises(Corruption, match=server.address):
        connect([server]).get(TABLE, KEYS)


def test_unknown_tables_are_named_with_those_there_are(make: MakeServer) -> None:
    client = connect([make()])
    with pytest.raises(NotFound, match="'ctr/nope'; there are ctr/embedding, ctr/linear"):
        client.get("ctr/nope", KEYS)
    with pytest.raises(ConfigError, match="its name lacks the model"):
        client.get("embedding", KEYS)
