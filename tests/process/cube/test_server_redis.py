"""Redis' own clients against the server's Redis port: redis-py, redis-cli, redis-benchmark, and bytes by hand."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.process.cube.serving import ServerProcess, feasigns_of, rows_of, write_version

redis = pytest.importorskip("redis")

FEASIGNS = feasigns_of(5_000)
SMALL = np.arange(1, 1001, dtype=np.uint64)
TOKEN = "open sesame, please"


def value(version: int, feasign: int) -> bytes:
    return rows_of(version, np.array([feasign], np.uint64)).tobytes()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("redis") / "data"
    write_version(data, 3, np.concatenate([SMALL, FEASIGNS]), tables=("embedding", "wide"))
    write_version(data, 8, SMALL[:10], model="other", tables=("embedding",))
    with ServerProcess(data, "--activate", "newest", token=TOKEN) as process:
        yield process


@pytest.fixture(params=[2, 3])
def client(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Any]:
    with redis.Redis(port=server.port, password=TOKEN, protocol=request.param, socket_timeout=60) as client:
        yield client


def test_get_and_mget(client: Any) -> None:
    assert client.ping()
    assert client.get(int(FEASIGNS[0])) == value(3, int(FEASIGNS[0]))
    assert client.get("0000000007") == value(3, 7)
    assert client.get(2**63 + 5) is None
    keys = [int(f) for f in FEASIGNS[:1000]]
    keys[17] = 999_999_999_999
    got = client.mget(keys)
    assert got[17] is None
    assert all(v == value(3, k) for k, v in zip(keys, got, strict=True) if k != 999_999_999_999)


def test_tables_by_number_and_by_name(client: Any, server: ServerProcess) -> None:
    assert client.mget(["ctr/wide:5", "other/embedding:5", "wide:6", "7"]) == [
        value(3, 5), value(8, 5), value(3, 6), value(3, 7),
    ]  # fmt: skip
    with redis.Redis(port=server.port, password=TOKEN, db=2) as third:
        assert third.get(5) == value(8, 5)
        assert third.get(11) is None
        assert third.dbsize() == 10
    with pytest.raises(redis.ResponseError, match="out of range"):
        client.execute_command("SELECT", 3)
    with pytest.raises(redis.ResponseError, match="is not a key"):
        client.get("embedding:5")  # two models have one


def test_what_clients_ask_around(client: Any) -> None:
    assert client.exists("1", "2", "123456789") == 2
    assert client.dbsize() == 6000
    info = client.info()
    assert info["redis_version"] and info["db2"]["keys"] == 10
    assert client.echo("héllo") == "héllo".encode()
    assert client.config_get("save") == {"save": ""}
    assert client.client_setname("me") and client.client_getname() in ("me", b"me")
    assert client.execute_command("COMMAND") == [] or client.execute_command("COMMAND") == {}
    for write in (["SET", "1", "x"], ["DEL", "1"], ["FLUSHALL"], ["MSET", "1", "x"]):
        with pytest.raises(redis.exceptions.ReadOnlyError):
            client.execute_command(*write)
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.execute_command("NONSENSE")
    with pytest.raises(redis.ResponseError, match="is not a key"):
        client.get("not a number")
    with pytest.raises(redis.ResponseError, match="wrong number"):
        client.execute_command("GET")


def test_a_pipeline_keeps_its_order(client: Any) -> None:
    pipe = client.pipeline(transaction=False)
    for feasign in FEASIGNS[:600]:
        pipe.get(int(feasign))
    pipe.ping()
    pipe.get("bad key")
    pipe.mget(["1", "2"])
    pipe.get(3)
    got = pipe.execute(raise_on_error=False)
    assert got[:600] == [value(3, int(f)) for f in FEASIGNS[:600]]
    assert got[600] is True and isinstance(got[601], redis.ResponseError)
    assert got[602:] == [[value(3, 1), value(3, 2)], value(3, 3)]


def test_transactions(client: Any) -> None:
    with client.pipeline() as pipe:
        for feasign in FEASIGNS[:600]:
            pipe.get(int(feasign))
        pipe.mget(["1", "2"])
        pipe.exists("1", "5555555")
        pipe.get("bad key")
        pipe.get(3)
        got = pipe.execute(raise_on_error=False)
    assert got[:600] == [value(3, int(f)) for f in FEASIGNS[:600]]
    assert got[600:602] == [[value(3, 1), value(3, 2)], 1]
    assert isinstance(got[602], redis.ResponseError) and got[603] == value(3, 3)
    with client.pipeline() as pipe, pytest.raises(redis.exceptions.ReadOnlyError):
        pipe.get(1)
        pipe.set("1", "x")
        pipe.execute()
    with client.pipeline() as pipe:
        pipe.watch("1")
        assert pipe.get(1) == value(3, 1)
        pipe.multi()
        pipe.get(2)
        assert pipe.execute() == [value(3, 2)]
    connection = redis.Connection(port=client.connection_pool.connection_kwargs["port"], password=TOKEN)
    try:
        for command, says in [("MULTI", b"OK"), ("GET 1", b"QUEUED"), ("DISCARD", b"OK"), ("PING", b"PONG")]:
            connection.send_command(*command.split())
            assert connection.read_response() in (says, says.decode())
        for command in ("EXEC", "DISCARD"):
            connection.send_command(command)
            with pytest.raises(redis.ResponseError, match="without MULTI"):
                connection.read_response()
    finally:
        connection.disconnect()


def test_what_a_key_is(client: Any) -> None:
    assert [client.ttl("1"), client.ttl("123456789"), client.pttl("wide:1")] == [-1, -2, -1]
    assert [client.type("1"), client.type("123456789")] == [b"string", b"none"]
    assert client.get("key:__rand_int__") is None
    assert client.mget("1", "key:__rand_int__", "2") == [value(3, 1), None, value(3, 2)]
    assert client.exists("key:__rand_int__") == 0


def test_scan_finds_every_feasign_once(client: Any) -> None:
    everything = {int(key) for key in client.scan_iter(count=1000)}
    assert everything == {int(f) for f in [*SMALL, *FEASIGNS]}
    assert {int(key) for key in client.scan_iter(match="99*", count=1)} == {
        f for f in everything if str(f).startswith("99")
    }
    assert list(client.scan_iter(_type="list")) == []
    assert {int(key) for key in client.scan_iter(match="??", count=10**12)} == set(range(10, 100))
    for bad in (["SCAN", "x"], ["SCAN", "0", "COUNT", "0"], ["SCAN", "0", "MATCH", "*" * 1000], ["SCAN", "0", "MATCH"]):
        with pytest.raises(redis.ResponseError):
            client.execute_command(*bad)
    assert client.scan(2**64 - 1) == (0, [])


@pytest.mark.promise("Redis clients while no version is active", "-LOADING, which clients retry, for every kind of key")
def test_nothing_active_is_loading(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_version(data, 3, SMALL)
    with ServerProcess(data) as server, redis.Redis(port=server.port) as client:
        for command in (["GET", "1"], ["GET", "ctr/embedding:1"], ["MGET", "embedding:1", "2"], ["EXISTS", "ctr/x:1"]):
            with pytest.raises(redis.BusyLoadingError):
                client.execute_command(*command)
        for command in (["TTL", "embedding:1"], ["TYPE", "1"], ["SCAN", "0"]):
            with pytest.raises(redis.BusyLoadingError):
                client.execute_command(*command)
        server.activate(3)
        assert client.get("ctr/embedding:1") == value(3, 1)


def test_a_scan_skips_what_a_delta_dropped(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_version(data, 3, SMALL)
    write_version(data, 4, SMALL[:5] + np.uint64(5000), parent=3, gone=SMALL[10:20])
    with ServerProcess(data, "--activate", "newest") as server, redis.Redis(port=server.port) as client:
        left = {int(f) for f in SMALL} - {int(f) for f in SMALL[10:20]} | {int(f) + 5000 for f in SMALL[:5]}
        assert {int(key) for key in client.scan_iter()} == left


def test_without_the_secret_nothing_is_told(server: ServerProcess) -> None:
    with redis.Redis(port=server.port) as client, pytest.raises(redis.AuthenticationError):
        client.get(1)
    with redis.Redis(port=server.port, password="wrong") as client, pytest.raises(redis.AuthenticationError):
        client.get(1)
    with redis.Redis(port=server.port, username="anyone", password=TOKEN) as client:
        assert client.get(1) == value(3, 1)


def speak(port: int, *parts: bytes) -> bytes:
    """Sends bytes, closes the sending side, and returns all that comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
        connection.sendall(b"QUIT\r\n")
        got = b""
        while part := connection.recv(65536):
            got += part
    return got


def test_inline_commands_and_split_ones(server: ServerProcess) -> None:
    auth = f"*2\r\n$4\r\nAUTH\r\n${len(TOKEN)}\r\n{TOKEN}\r\n".encode()
    expected = b"+OK\r\n$40\r\n" + value(3, 7) + b"\r\n+PONG\r\n+OK\r\n"
    assert speak(server.port, auth, b"GET 7\r\nPING\r\n") == expected
    whole = auth + b"*2\r\n$3\r\nget\r\n$1\r\n7\r\n*1\r\n$4\r\nping\r\n"
    assert speak(server.port, *(whole[i : i + 1] for i in range(len(whole)))) == expected
    assert speak(server.port, f'AUTH "{TOKEN}"\r\nGET "7"\r\nPING\r\n'.encode()) == expected
    assert speak(server.port, f"auth '{TOKEN}'\r\nGET \"\\x37\"\r\nPING\r\n".encode()) == expected
    assert speak(server.port, auth, b'ECHO "a\\n\\"b"\r\n').split(b"\r\n")[2:4] == [b'a\n"b', b"+OK"]
    for unbalanced in (b'GET "7\r\n', b"GET '7\r\n", b'GET "7"8\r\n'):
        assert b"-ERR Protocol error: unbalanced quotes" in speak(server.port, auth, unbalanced)
    hello = b"HELLO 3 AUTH default " + TOKEN.replace(" ", "_").encode() + b"\r\n"
    assert speak(server.port, hello).startswith(b"-WRONGPASS")


@pytest.mark.parametrize(
    "bad",
    [
        b"*99999999999\r\n",
        b"*2\r\n$3\r\nGET\r\n:1\r\n",
        b"*1\r\n$-5\r\n",
        b"*1\r\n$4294967296\r\n",
        b"*x\r\n",
        b"*1\r\n$3\r\nGETxx",
    ],
)
def test_a_broken_command_costs_the_connection(server: ServerProcess, bad: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(bad)
        got = b""
        while part := connection.recv(65536):
            got += part
    assert got.startswith(b"-ERR Protocol error")


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not installed")
def test_redis_cli(server: ServerProcess) -> None:
    command = ["redis-cli", "-p", str(server.port), "-a", TOKEN, "--no-auth-warning", "--no-raw"]
    done = subprocess.run([*command, "-3", "EXISTS", "1"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "(integer) 1"
    done = subprocess.run([*command, "GET", "123456789"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "(nil)"


@pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="redis-benchmark is not installed")
@pytest.mark.parametrize("what", [["-t", "get"], ["MGET", "__rand_int__", "__rand_int__"], ["GET", "__rand_int__"]])
def test_redis_benchmark(server: ServerProcess, what: list[str]) -> None:
    command = ["redis-benchmark", "-p", str(server.port), "-a", TOKEN, "-r", "1000", "-n", "2000", "-P", "8", "--csv"]
    done = subprocess.run([*command, *what], capture_output=True, text=True, timeout=60, check=True)
    assert "rps" in done.stdout and "rror" not in done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="redis-benchmark is not installed")
def test_redis_benchmark_of_its_own_key(server: ServerProcess) -> None:
    command = ["redis-benchmark", "-p", str(server.port), "-a", TOKEN, "-t", "get", "-n", "200", "--csv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "rps" in done.stdout and "rror" not in done.stdout + done.stderr


def test_a_selected_table_stays_selected(tmp_path: Path) -> None:
    """Other models that come and go move the numbers, not what a connection chose."""
    data = tmp_path / "data"
    write_version(data, 3, SMALL)
    write_version(data, 8, SMALL, model="before")
    with ServerProcess(data) as server, redis.Redis(port=server.port) as client:
        assert client.ping()
        with pytest.raises(redis.BusyLoadingError):
            client.get(1)
        server.activate(3)
        assert client.get(1) == value(3, 1)
        server.activate(8, model="before")
        assert client.get(1) == value(3, 1)
        with redis.Redis(port=server.port) as other:
            assert other.get(1) == value(8, 1)
