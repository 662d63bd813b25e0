"""Hostile or broken connections cost their sender the connection and others nothing: a client
keeps sending lookups meanwhile, gets every row right, and hardly notices."""

from __future__ import annotations

import json
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from elasticctr import _native
from elasticctr.cube.build.builds import build_version
from elasticctr.versions.repository import Repository
from tests.cluster.single import check_rows
from tests.cluster.truth import MODEL, TABLE, Truth, publish
from tests.process.cube.serving import HEADER, HELLO, LOOKUP, MAGIC, PING, ServerProcess, Wire

TOKEN = "the one right token"


def frame(opcode: int, body: bytes, table: str = "") -> bytes:
    name = _native.xxh64(table.encode()) if table else 0
    return HEADER.pack(MAGIC, len(body), 1, 0, name, 0, opcode, 0, 0) + body


def connections(server: ServerProcess) -> int:
    return int(server.http("GET", "/v1/status")[1]["connections"])


class Innocent(threading.Thread):
    """Asks without pause over one connection and checks every row."""

    def __init__(self, server: ServerProcess, truth: Truth) -> None:
        super().__init__(daemon=True)
        self._server, self._truth = server, truth
        self.asked, self.slowest_s = 0, 0.0
        self.failure: BaseException | None = None
        self._is_over = threading.Event()

    def run(self) -> None:
        generator = np.random.default_rng(1)
        try:
            wire = Wire(self._server.port, TOKEN)
            while not self._is_over.is_set():
                places = generator.integers(0, len(self._truth.feasigns), 50)
                started = time.monotonic()
                check_rows(wire, self._truth, places)
                self.slowest_s = max(self.slowest_s, time.monotonic() - started)
                self.asked += 1
        except BaseException as e:
            self.failure = e

    def finish(self) -> None:
        """After some more answers."""
        enough, deadline = self.asked + 10, time.monotonic() + 60
        while self.asked < enough and self.failure is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self._is_over.set()
        self.join(60)
        assert self.failure is None, self.failure
        assert self.asked >= enough


@pytest.fixture(scope="module")
def truth() -> Truth:
    truth = Truth()
    truth.define(1)
    return truth


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, truth: Truth) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("hostile")
    repository = Repository(str(root / "repo"))
    publish(repository, truth, 1)
    build_version(repository, MODEL, 1, root / "data")
    with ServerProcess(root / "data", "--activate", "newest", token=TOKEN) as server:
        yield server


@pytest.fixture
def innocent(server: ServerProcess, truth: Truth) -> Iterator[Innocent]:
    thread = Innocent(server, truth)
    thread.start()
    yield thread
    thread.finish()
    assert server.process.poll() is None


def test_a_frame_of_4_gb(server: ServerProcess, innocent: Innocent) -> None:
    before = server.rss_bytes()
    for size in (0xFFFFFFFF, 0x80000000, (16 << 20) + 1):
        wire = Wire(server.port, TOKEN)
        wire.socket.sendall(HEADER.pack(MAGIC, size, 1, 0, 0, 0, LOOKUP, 0, 0) + b"x" * 100)
        answer = wire.receive()
        assert answer.status == 11, answer
        assert wire.is_closed()
    assert server.rss_bytes() - before < 64 << 20


def test_half_a_frame_and_then_nothing(server: ServerProcess, innocent: Innocent) -> None:
    """Cut off by the sender, or held open for good: the server waits for neither."""
    whole = frame(LOOKUP, b"\0" * 8000)
    held = []
    for size in (1, 3, 4, 39, 40, 41, 4000, len(whole) - 1):
        wire = Wire(server.port, TOKEN)
        wire.socket.sendall(whole[:size])
        wire.close()
        held.append(Wire(server.port, TOKEN))
        held[-1].socket.sendall(whole[:size])
    time.sleep(0.3)
    for wire in held:
        wire.close()


def test_random_bytes(server: ServerProcess, innocent: Innocent) -> None:
    generator = random.Random(5)
    for round_ in range(150):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            data = bytearray(generator.randbytes(generator.randrange(1, 5000)))
            if round_ % 3 == 1:
                data[:4] = MAGIC
            elif round_ % 3 == 2:
                # A good greeting first, so that the rest is read after authentication.
                connection.sendall(frame(HELLO, TOKEN.encode()))
                data[:40] = HEADER.pack(
                    MAGIC, generator.randrange(0, 6000), 1, generator.getrandbits(64), generator.getrandbits(64),
                    generator.getrandbits(32), generator.randrange(0, 6), generator.randrange(0, 256), 7,
                )  # fmt: skip
            try:
                connection.sendall(data)
                connection.settimeout(0.05)
                while connection.recv(1 << 16):
                    pass
            except OSError:
                continue


def test_a_wrong_token(server: ServerProcess, innocent: Innocent) -> None:
    for token in (b"", b"the wrong one", TOKEN.encode()[:-1], TOKEN.encode() + b"x", b"\xff" * 5000):
        connection = Wire(server.port)
        connection.socket.sendall(frame(HELLO, token))
        assert connection.receive().status == 16
        assert connection.is_closed()
    # A lookup without a greeting is not answered either, nor is anything over HTTP.
    connection = Wire(server.port)
    connection.socket.sendall(frame(LOOKUP, b"\0" * 80))
    assert connection.receive().status == 16
    assert connection.is_closed()
    for header in ("", "Authorization: Bearer wrong\r\n", "Authorization: Basic dGhl\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as http:
            body = json.dumps({"model": MODEL, "version": 1}).encode()
            head = f"POST /v1/retire HTTP/1.1\r\nHost: x\r\n{header}Content-Length: {len(body)}\r\n\r\n"
            http.sendall(head.encode() + body)
            assert http.recv(4096).split()[1] == b"401"


def test_an_answer_that_is_not_read(server: ServerProcess, innocent: Innocent, truth: Truth) -> None:
    """A peer that sends requests and reads no answers: the server stops reading from it, and memory stays bounded."""
    before = server.rss_bytes()
    wire = Wire(server.port, TOKEN)
    wire.socket.setblocking(False)
    request = frame(LOOKUP, truth.feasigns[:2000].tobytes(), table=f"{MODEL}/{TABLE}")
    sent = 0
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and sent < 64 << 20:
        try:
            sent += wire.socket.send(request)
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < 64 << 20
    assert server.rss_bytes() - before < 256 << 20
    wire.close()


def test_ten_thousand_idle_connections(server: ServerProcess, innocent: Innocent) -> None:
    count = 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 200:
        pytest.skip(f"only {hard} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
    idle = []
    try:
        for i in range(count):
            # Several local addresses, so that the ports of one do not run out.
            connection = socket.socket()
            connection.bind((f"127.0.0.{2 + i % 4}", 0))
            connection.settimeout(10)
            connection.connect(("127.0.0.1", server.port))
            if i % 2:
                connection.sendall(frame(HELLO, TOKEN.encode()))
            idle.append(connection)
        late = server.wire()
        assert late.ask(PING, b"still there?").body == b"still there?"
        late.close()
        assert connections(server) > count / 2
        assert server.rss_bytes() < 2 << 30
    finally:
        for connection in idle:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_server_is_as_before(server: ServerProcess, truth: Truth, innocent: Innocent) -> None:
    """After all of the above: all rows right, connections released, no thread spinning."""
    wire = server.wire()
    check_rows(wire, truth, np.arange(len(truth.feasigns)))
    wire.close()
    deadline = time.monotonic() + 60
    while connections(server) > 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert connections(server) <= 20
