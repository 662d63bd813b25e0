"""Who may ask a cube server: tokens and other sites' pages."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process.cube.serving import LOOKUP, PING, ServerProcess, Wire, feasigns_of, write_version

from elasticctr.net.access import write_token

FEASIGNS = feasigns_of(100)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("access") / "data"
    write_version(data, 1, FEASIGNS)
    with ServerProcess(data, "--activate", "newest") as process:
        yield process


def test_wrong_token(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("token") / "data"
    write_version(data, 1, FEASIGNS)
    with ServerProcess(data, "--activate", "newest", token="a secret of sixteen") as server:
        for opcode, body in [(LOOKUP, FEASIGNS[:1].tobytes()), (PING, b""), (4, b""), (1, b"secreT"), (1, b"")]:
            wire = Wire(server.port)
            answer = wire.ask(opcode, body)
            assert answer.status == 16
            assert wire.is_closed()
        assert server.wire().lookup(FEASIGNS[:1]).status == 0
        assert server.http("GET", "/healthz", headers={"Authorization": "none"})[0] == 200
        for path in ("/v1/status", "/metrics", "/nothing"):
            status, answer = server.http("GET", path, headers={"Authorization": "Bearer wrong"})
            assert (status, answer["error"]["code"]) == (401, "Unauthorized")
        assert server.http("POST", "/v1/load", "x" * 100_000, headers={"Authorization": "Bearer no"})[0] == 401
        assert "cube_unauthorized_total 9" in server.http("GET", "/metrics")[1]


@pytest.mark.promise(
    "a Cube reader's token (wire, Redis or HTTP) used to load, activate or retire",
    "a read token looks up rows and sees status; commands are refused with 403",
)
def test_a_read_token_looks_up_and_commands_nothing(tmp_path: Path) -> None:
    data, reader = tmp_path / "data", "the token of readers"
    write_version(data, 1, FEASIGNS)
    write_token(tmp_path / "read", reader)
    arguments = ["--activate", "newest", "--read-token-file", str(tmp_path / "read")]
    with ServerProcess(data, *arguments, token="the token of admins") as server:
        assert Wire(server.port, reader).lookup(FEASIGNS[:1]).status == 0
        assert Wire(server.port, server.token).lookup(FEASIGNS[:1]).status == 0
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as redis:
            redis.sendall(f"*2\r\n$4\r\nAUTH\r\n${len(reader)}\r\n{reader}\r\n".encode())
            assert redis.recv(100) == b"+OK\r\n"
        as_reader = {"Authorization": f"Bearer {reader}"}
        assert server.http("GET", "/v1/status", headers=as_reader)[0] == 200
        assert server.http("POST", "/DictService/seek", "{}", headers=as_reader)[0] != 403
        for path in ("/v1/load", "/v1/activate", "/v1/retire", "/ControlService/cmd"):
            status, answer = server.http("POST", path, {"model": "ctr", "version": 1}, headers=as_reader)
            assert (status, answer["error"]["code"]) == (403, "Unauthorized")
            assert "may only read" in answer["error"]["message"]
        assert server.http("POST", "/v1/activate", {"model": "ctr", "version": 1})[0] == 200


@pytest.mark.promise(
    "a web page that has a browser command a cube server without a token",
    "foreign Origin and Host, and forms, are refused",
)
def test_pages_of_other_sites_are_refused(server: ServerProcess) -> None:
    order = {"model": "ctr", "version": 1}
    for headers, expected in (
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ):
        for path in ("/v1/load", "/v1/activate", "/v1/retire", "/ControlService/cmd", "/DictService/seek"):
            assert server.http("POST", path, order, headers=headers)[0] == expected, (path, headers)
    for headers in ({}, {"Host": "localhost:1"}, {"Host": "[::1]:1"}, {"Origin": "http://127.0.0.1:9"}):
        assert server.http("POST", "/v1/load", order, headers=headers)[0] in (200, 202, 404), headers
    assert server.http("GET", "/v1/status", headers={"Host": "rebound.example"})[0] == 403
