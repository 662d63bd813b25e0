"""Hostile or failing peers: each loses its own connection and harms no other."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.process.cube.serving import (
    HEADER,
    LOOKUP,
    MAGIC,
    PING,
    Answer,
    ServerProcess,
    Wire,
    feasigns_of,
    rows_of,
    write_version,
)

FEASIGNS = feasigns_of(50_000)
MOST, MOST_HTTP = 16_384, 4096  # feasigns of a lookup by the wire and by HTTP


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("hostile") / "data"
    write_version(data, 1, FEASIGNS)
    arguments = ["--activate", "newest", "--request-timeout", "2", "--max-buffered", "64"]
    arguments += ["--max-connections", "15000", "--max-connections-per-address", "15000"]
    with ServerProcess(data, *arguments) as process:
        yield process


@pytest.fixture(autouse=True)
def others_go_on(server: ServerProcess) -> Iterator[None]:
    """A well-behaved connection, opened before, still gets the right rows."""
    wire = server.wire()
    yield
    rows, found = wire.lookup(FEASIGNS[:1000]).rows()
    assert found.all()
    np.testing.assert_array_equal(rows, rows_of(1, FEASIGNS[:1000]))
    wire.close()


def header(**fields: int) -> bytes:
    names = ("body", "id", "version", "table", "time", "opcode", "status", "detail")
    return HEADER.pack(MAGIC, *(fields.get(name, 0) for name in names))


@pytest.mark.parametrize(
    "frame",
    [
        header(body=0xFFFFFFFF, opcode=LOOKUP),
        header(body=(16 << 20) + 8, opcode=LOOKUP),
        header(opcode=99),
        header(opcode=0),
        header(body=65, opcode=PING) + bytes(65),
        header(body=8 * 1_000_001, opcode=LOOKUP) + bytes(8 * 1_000_001),
    ],
    ids=["4 GB", "over the limit", "unknown opcode", "opcode 0", "long ping", "too many feasigns"],
)
def test_a_frame_over_the_limits_is_told_and_ends_the_connection(server: ServerProcess, frame: bytes) -> None:
    wire = server.wire()
    wire.socket.sendall(frame)
    answer = wire.receive()
    assert (answer.status, answer.detail) == (11, 7) and answer.body
    assert wire.is_closed()


def test_bytes_that_are_no_frame_end_the_connection(server: ServerProcess) -> None:
    wire = server.wire()
    wire.socket.sendall(MAGIC[:1] + b"garbage" * 20)
    assert wire.receive().status == 11
    assert wire.is_closed()


def test_random_bytes(server: ServerProcess) -> None:
    rng = random.Random(1)
    for i in range(300):
        first = [MAGIC, b"*3\r\n", b"GET /", b"POST /v1/load HTTP/1.1\r\n", b""][i % 5]
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            try:
                connection.sendall(first + rng.randbytes(rng.randrange(1, 400)))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
            except OSError:
                pass


def test_half_a_frame_is_waited_for_but_not_for_ever(server: ServerProcess) -> None:
    wire = server.wire()
    whole = header(body=800, opcode=LOOKUP, id=7) + FEASIGNS[:100].tobytes()
    started = time.monotonic()
    wire.socket.sendall(whole[:500])
    assert wire.is_closed()
    assert time.monotonic() - started > 1.5


def test_slow_loris(server: ServerProcess) -> None:
    """A byte now and then does not keep half a request alive."""
    openings = [b"G", MAGIC, b"*2\r\n$3\r\nGET\r\n$5\r\n", b"GET /healthz HTTP/1.1\r\nX: "]
    slow = {opening: socket.create_connection(("127.0.0.1", server.port), timeout=60) for opening in openings}
    for opening, connection in slow.items():
        connection.sendall(opening)
        connection.setblocking(False)
    started = time.monotonic()
    while slow and time.monotonic() - started < 60:
        time.sleep(0.2)
        for opening, connection in list(slow.items()):
            try:
                connection.send(b"1")
                is_closed = connection.recv(1000) == b""
            except BlockingIOError:
                continue
            except OSError:
                is_closed = True
            if is_closed:
                slow.pop(opening).close()
    assert not slow


def test_who_does_not_read_is_not_read_from(server: ServerProcess) -> None:
    """Answers wait in the server up to the output of one turn, and the connection ends if they are not read."""
    before = server.rss_bytes()
    wires = [server.wire() for _ in range(20)]
    for wire in wires:
        wire.socket.setblocking(False)
        frame = header(body=8 * 10_000, opcode=LOOKUP, table=_table()) + FEASIGNS[:10_000].tobytes()
        try:
            for _ in range(200):
                wire.socket.sendall(frame)
        except BlockingIOError:
            pass
    time.sleep(0.5)
    assert server.rss_bytes() - before < 100 << 20
    deadline = time.monotonic() + 60
    while server.http("GET", "/v1/status")[1]["connections"] > 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert server.http("GET", "/v1/status")[1]["connections"] <= 2
    assert "cube_connections_timed_out_total" in server.http("GET", "/metrics")[1]


def _ask_and_never_read(server: ServerProcess, request: bytes, count: int) -> list[socket.socket]:
    """Connections that have sent as many requests as the system takes."""
    peers = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(count)]
    for peer in peers:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        # Half a request that finds no room any more costs its connection.
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            for _ in range(20):
                peer.sendall(request)
    return peers


def _overloaded(server: ServerProcess) -> int:
    """Keys that were refused for lack of room."""
    found = re.search(
        r'cube_misses_total\{table="ctr/embedding",kind="overloaded"\} (\d+)', server.http("GET", "/metrics")[1]
    )
    return int(found[1]) if found else 0


def test_overload_is_an_answer(server: ServerProcess) -> None:
    """16 of 64 MiB may wait for one address; requests beyond that are refused and may be retried."""
    asked = np.resize(FEASIGNS, MOST)
    wire = server.wire()
    assert wire.lookup(asked).status == 0
    request = HEADER.pack(MAGIC, 8 * MOST, 1, 0, _table(), 0, LOOKUP, 0, 0) + asked.tobytes()
    greedy = _ask_and_never_read(server, request, 100)

    def ask() -> Answer:
        """A partial request is closed rather than answered; the client connects again."""
        nonlocal wire
        while True:
            try:
                return wire.lookup(asked)
            except ConnectionError:
                wire = server.wire()

    try:
        deadline = time.monotonic() + 60
        while (answer := ask()).status == 0:
            assert time.monotonic() < deadline
        assert (answer.status, answer.detail) == (17, 4) and answer.time_ms > 0
        assert wire.lookup(asked[:10]).status == 0, "what fits is served"
    finally:
        for peer in greedy:
            peer.close()
    deadline = time.monotonic() + 60
    while ask().status != 0:
        assert time.monotonic() < deadline
    assert _overloaded(server) >= MOST


def test_deadline_that_passed(server: ServerProcess) -> None:
    """Slow lookups in front make the next one late."""
    wire = server.wire()
    for _ in range(5):
        wire.send(LOOKUP, np.resize(FEASIGNS, MOST).tobytes(), table="ctr/embedding")
    frames = b"".join(
        HEADER.pack(MAGIC, 80, i, 0, _table(), 1, LOOKUP, 0, 0) + FEASIGNS[:10].tobytes() for i in range(3)
    )
    wire.socket.sendall(frames)
    time.sleep(0.1)
    assert all(wire.receive().status == 0 for _ in range(5))
    statuses = {(a.status, a.detail) for a in (wire.receive() for _ in range(3))}
    assert statuses <= {(0, 0), (18, 6)}


def test_more_keys_than_a_request_may_have(server: ServerProcess) -> None:
    wire = server.wire()
    answer = wire.lookup(np.resize(FEASIGNS, MOST + 1))
    assert (answer.status, answer.detail) == (11, 7) and b"hello" in answer.body
    assert wire.is_closed()
    keys = np.resize(FEASIGNS, MOST_HTTP + 1).tolist()
    status, answer = server.http("POST", "/DictService/seek", {"keys": keys})
    assert status == 400 and "4096" in answer["error"]["message"]


def open_idle(port: int, count: int) -> list[socket.socket]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 1000)), hard))
    return [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(count)]


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_idle_connections_cost_little(server: ServerProcess, count: int) -> None:
    before = server.rss_bytes()
    idle = open_idle(server.port, count)
    try:
        for connection in idle[::10]:
            connection.sendall(header(opcode=PING, body=4) + b"ping")
            assert len(connection.recv(100)) == 44
        used_s = server.cpu_s()
        assert (server.rss_bytes() - before) / count < 2048
        rows, _ = server.wire().lookup(FEASIGNS[:100]).rows()
        np.testing.assert_array_equal(rows, rows_of(1, FEASIGNS[:100]))
        time.sleep(1)
        assert server.cpu_s() - used_s < 0.2
    finally:
        for connection in idle:
            connection.close()


def test_connections_over_the_limit_are_closed(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("limit") / "data"
    write_version(data, 1, FEASIGNS[:100])
    with ServerProcess(data, "--activate", "newest", "--max-connections", "5") as server:
        held = [server.wire() for _ in range(5)]
        for wire in held:
            wire.ask(PING)
        assert Wire(server.port).is_closed()
        held.pop().close()
        deadline = time.monotonic() + 60
        while True:  # until the server has noticed
            try:
                assert server.wire().ask(PING, b"again").body == b"again"
                break
            except OSError:
                assert time.monotonic() < deadline


@pytest.mark.promise("one address opens connections without end", "it gets its share; all other clients are served")
def test_connections_of_one_address_are_limited(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("address") / "data"
    write_version(data, 1, FEASIGNS[:100])
    with ServerProcess(data, "--activate", "newest", "--max-connections-per-address", "5") as server:
        held = [server.wire() for _ in range(5)]
        for wire in held:
            wire.ask(PING)
        assert Wire(server.port).is_closed()
        with socket.create_connection(("127.0.0.1", server.port), 60, ("127.0.0.2", 0)) as other:
            other.sendall(header(opcode=PING, body=4) + b"ping")
            assert other.recv(100).endswith(b"ping")


@pytest.mark.promise("lookups over HTTP whose answers are not read", "refused at the address's share of the buffers")
def test_unread_answers_of_seek_are_charged(server: ServerProcess) -> None:
    keys = json.dumps({"keys": np.resize(FEASIGNS, MOST_HTTP).tolist()}).encode()
    ask = f"POST /DictService/seek HTTP/1.1\r\nContent-Length: {len(keys)}\r\n\r\n".encode() + keys
    before, refused = server.rss_bytes(), _overloaded(server)
    peers = _ask_and_never_read(server, ask, 100)
    try:
        deadline = time.monotonic() + 30
        while _overloaded(server) == refused:
            assert time.monotonic() < deadline
        # 64 MiB may wait in all, and what a loop just makes comes on top.
        assert server.rss_bytes() - before < 160 << 20
    finally:
        for peer in peers:
            peer.close()


@pytest.mark.promise(
    "control requests with bodies of megabytes", "413 after the head, before a byte of the body is read"
)
def test_bodies_of_control_requests_are_small(server: ServerProcess) -> None:
    for path in ("/v1/load", "/v1/activate", "/ControlService/cmd", "/nowhere"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as peer:
            peer.sendall(f"POST {path} HTTP/1.1\r\nContent-Length: {(1 << 20) + 1}\r\n\r\n".encode())
            assert peer.recv(100).startswith(b"HTTP/1.1 413 ")
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as peer:
            peer.sendall(f"POST {path} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            with contextlib.suppress(OSError):
                for _ in range(40):
                    peer.sendall(b"8000\r\n" + bytes(0x8000) + b"\r\n")
            assert peer.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.promise("a mapped index file cut short under a live server", "Corruption for it, readyz 503, no SIGBUS")
def test_a_mapped_file_cut_short(tmp_path: Path) -> None:
    folder = write_version(tmp_path / "data", 1, FEASIGNS)
    write_version(tmp_path / "data", 1, FEASIGNS[:100], model="other")
    path = folder / "embedding.cube"
    good = path.read_bytes()
    with ServerProcess(tmp_path / "data", "--activate", "newest", "--mmap") as server:
        wire = server.wire()
        assert wire.lookup(FEASIGNS[:1000]).rows()[1].all()
        os.truncate(path, 8192)
        answer = wire.lookup(FEASIGNS[-MOST:])
        assert answer.status == 14 and b"cut short" in answer.body
        assert wire.lookup(FEASIGNS[:1]).status == 14
        assert wire.lookup(FEASIGNS[:100], "other/embedding").rows()[1].all()
        assert server.http("GET", "/readyz")[0] == 503
        model = next(m for m in server.http("GET", "/v1/status")[1]["models"] if m["name"] == "ctr")
        assert model["versions"][0]["state"] == "failed" and "cut short" in model["versions"][0]["error"]
        # The file is fetched again, and loaded again.
        path.unlink()
        path.write_bytes(good)
        assert server.http("POST", "/v1/load", {"model": "ctr", "version": 1})[0] in (200, 202)
        deadline = time.monotonic() + 60
        while server.http("GET", "/readyz")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        rows, found = wire.lookup(FEASIGNS[:1000]).rows()
        assert found.all()
        np.testing.assert_array_equal(rows, rows_of(1, FEASIGNS[:1000]))


def _table() -> int:
    from elasticctr import _native

    return int(struct.unpack("<Q", struct.pack("<Q", _native.xxh64(b"ctr/embedding")))[0])
