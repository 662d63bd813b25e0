"""A control server against clients that hold connections, send too much or too slowly, or are pages of other sites."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from tests.cluster.fakes import Serving

from elasticctr.net import connections, web
from elasticctr.net.access import Tokens
from elasticctr.net.connections import Connections
from elasticctr.net.web import WebServer, get, make_app, post

ADMIN, READ = "the token of admins", "the token of readers"
WAIT_S = 60.0


@pytest.fixture
def serving() -> Iterator[Serving]:
    routes = [get("/v1/status", lambda _: {"a": 1}), post("/v1/stop", lambda body: body, max_bytes=1000)]
    serving = Serving(make_app(routes, Tokens(ADMIN, READ)))
    yield serving
    serving.stop(wait=True)


@pytest.fixture
def bare() -> Iterator[Serving]:
    """Without a token."""
    serving = Serving(make_app([get("/v1/status", lambda _: {"a": 1}), post("/v1/stop", lambda body: body)], Tokens()))
    yield serving
    serving.stop(wait=True)


def connect(serving: Serving) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(serving.url.rpartition(":")[2])), timeout=WAIT_S)


def ask(serving: Serving, method: str, path: str, token: str | None = ADMIN, **more: Any) -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.request(
        method, serving.url + path, headers=headers | more.pop("headers", {}), timeout=WAIT_S, trust_env=False, **more
    )


def is_closed(connection: socket.socket) -> bool:
    """Waits for it, past what was answered."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def test_no_part_of_an_answer_waits_for_the_part_before_it() -> None:
    server = WebServer(make_app([], Tokens()), "127.0.0.1", 0)
    listener = server._socket
    with listener, socket.create_connection(("127.0.0.1", server.port), timeout=60):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@pytest.mark.promise(
    "hundreds of silent connections to coordinator, agent or transfer",
    "others are answered meanwhile; silent connections are closed after 10 s, or sooner if room is needed",
)
def test_silent_connections_do_not_lock_others_out(serving: Serving) -> None:
    with ExitStack() as held:
        silent = [held.enter_context(connect(serving)) for _ in range(520)]
        assert ask(serving, "GET", "/v1/status").status_code == 200
        assert ask(serving, "POST", "/v1/stop", json={}).status_code == 200
        assert len(silent) == 520


def test_the_oldest_silent_connection_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "Connections", lambda: Connections(most=8))
    serving = Serving(make_app([get("/v1/status", lambda _: {"a": 1})], Tokens(ADMIN)))
    try:
        with ExitStack() as held:
            silent = [held.enter_context(connect(serving)) for _ in range(8)]
            with httpx.Client(base_url=serving.url, timeout=WAIT_S, trust_env=False) as client:
                headers = {"Authorization": f"Bearer {ADMIN}"}
                assert client.get("/v1/status", headers=headers).status_code == 200
                assert is_closed(silent[0])
                # A connection that has sent a request is kept in preference to those that never did.
                held.enter_context(connect(serving))
                assert is_closed(silent[1])
                assert client.get("/v1/status", headers=headers).status_code == 200
    finally:
        serving.stop(wait=True)


def test_an_address_has_its_share_of_the_connections() -> None:
    class One:
        def __init__(self, address: str) -> None:
            self.address, self.is_abandoned = address, False

        def abandon(self) -> None:
            self.is_abandoned = True

    held: Any = Connections(most=100, per_address=2)
    far = [One("192.0.2.1") for _ in range(3)]
    assert [held.admit(one) for one in far] == [True, True, False]
    held.forget(far[2])
    assert held.admit(One("192.0.2.2"))
    held.forget(far[0])
    assert held.admit(One("192.0.2.1"))
    assert all(held.admit(One("127.0.0.1")) for _ in range(5))


@pytest.mark.promise(
    "a request head that comes byte by byte, or never, to coordinator, agent or transfer",
    "the connection is closed when the head is not complete in 10 s",
)
def test_a_slow_head_is_cut(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    with connect(serving) as silent, connect(serving) as slow, connect(serving) as second:
        slow.sendall(b"GET /v1/status HTTP/1.1\r\n")
        second.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert second.recv(1 << 16).startswith(b"HTTP/1.1 200")
        second.sendall(b"GET /healthz HTTP/1.1\r\n")
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            try:
                slow.sendall(b"X")
            except OSError:
                break
            time.sleep(0.05)
        assert is_closed(slow) and is_closed(silent) and is_closed(second)
    assert ask(serving, "GET", "/v1/status").status_code == 200


@pytest.mark.promise(
    "a body to the control plane that is too long, or arrives too slowly",
    "refused by its announced length before it is read, or cut at the route's limit or deadline",
)
def test_bodies_have_limits(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "BODY_S", 0.5)
    head = f"POST /v1/stop HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n".encode()
    for rest, status in (
        (b"Content-Length: 1001\r\n\r\n", b"413"),  # nothing of it was sent
        (b"Transfer-Encoding: chunked\r\n\r\n" + b"3e9\r\n" + b" " * 1001 + b"\r\n", b"413"),
        (b"Content-Length: 1000\r\n\r\n{", b"504"),
    ):
        with connect(serving) as connection:
            connection.sendall(head + rest)
            answer = connection.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 " + status), answer
            assert is_closed(connection)
    assert ask(serving, "POST", "/v1/stop", json={"a": 1}).json() == {"a": 1}


@pytest.mark.promise(
    "a read token that commands coordinator, agent or transfer",
    "it sees status; anything else is refused with 403",
)
def test_a_read_token_may_only_read(serving: Serving) -> None:
    assert ask(serving, "GET", "/v1/status", READ).status_code == 200
    refused = ask(serving, "POST", "/v1/stop", READ, json={})
    assert refused.status_code == 403
    assert "may only read" in refused.json()["error"]["message"]
    for wrong in (None, "x", "the token of nobody", ADMIN + "x"):
        refused = ask(serving, "GET", "/v1/status", wrong)
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
    assert ask(serving, "GET", "/healthz", None).status_code == 200


@pytest.mark.promise(
    "a web page that has a browser command a coordinator, agent or transfer without a token",
    "foreign Origin and Host, and forms, are refused",
)
def test_pages_of_other_sites_are_refused(bare: Serving) -> None:
    port = bare.url.rpartition(":")[2]
    json_type = {"Content-Type": "application/json"}
    for headers, status in (
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": f"rebound.example:{port}"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({}, 200),
        ({"Origin": f"http://127.0.0.1:{port}"}, 200),
        ({"Host": f"localhost:{port}", "Origin": "http://localhost:3000"}, 200),
    ):
        answer = ask(bare, "POST", "/v1/stop", None, content=b"{}", headers=json_type | headers)
        assert answer.status_code == status, (headers, answer.text)
    assert ask(bare, "GET", "/v1/status", None, headers={"Host": "evil.example"}).status_code == 403
    assert ask(bare, "GET", "/v1/status", None).status_code == 200


def test_requests_under_way_are_counted_without_idle_connections() -> None:
    began, release = threading.Event(), threading.Event()

    def wait(_: object) -> dict[str, object]:
        began.set()
        release.wait(WAIT_S)
        return {}

    app = make_app([get("/v1/wait", wait), get("/v1/status", lambda _: {})], Tokens(ADMIN))
    app._left = 1  # type: ignore[attr-defined]
    serving = Serving(app)
    try:
        waiting = threading.Thread(target=ask, args=(serving, "GET", "/v1/wait"))
        waiting.start()
        assert began.wait(WAIT_S)
        busy = ask(serving, "GET", "/v1/status")
        assert busy.status_code == 503 and busy.headers["retry-after"] == "1"
        release.set()
        waiting.join(WAIT_S)
        assert ask(serving, "GET", "/v1/status").status_code == 200
    finally:
        release.set()
        serving.stop(wait=True)
