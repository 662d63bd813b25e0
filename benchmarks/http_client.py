"""What a client of predictions pays per request: our HTTP/1.1 connection against httpx, and h11 alone on a socket.

One connection, kept alive, to a server on the loopback that answers every request with the same bytes. Processor time
is the client's alone; requests per second include the server and the network.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import time
from collections.abc import Callable
from statistics import median

import h11
import httpx

from elasticctr.serve.client.connection import Connection
from elasticctr.serve.client.http1 import HttpResponse, format_head
from elasticctr.serve.client.settings import Address
from measure import parse_arguments, print_result

SENT = b'{"timeout_ms":1000,"samples":[{"user":"17","item":"4711","age":0.5}]}'
ANSWER = b'{"scores":[0.5],"model":"ctr","version":1,"variant":"main","coverage":{"asked":2,"found":2}}'
PATH = "/v1/models/ctr:predict"


def serve(listener: socket.socket) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        got = b""
        while data := connection.recv(65536):
            got += data
            if got.endswith(SENT):
                connection.sendall(head + ANSWER)
                got = b""


def own_client(port: int) -> Callable[[], bytes]:
    connection = Connection(Address("127.0.0.1", port, False, ""), None, 5.0)
    head = format_head(PATH, f"127.0.0.1:{port}", None)

    def ask() -> bytes:
        connection.send(b"%sContent-Length: %d\r\n\r\n%s" % (head, len(SENT), SENT))
        response: HttpResponse | None = None
        while response is None:
            poll = select.poll()
            poll.register(connection.socket, connection.events)
            poll.poll()
            response = connection.advance()
        return response.body

    return ask


def httpx_client(port: int) -> Callable[[], bytes]:
    client = httpx.Client(trust_env=False, headers={"Content-Type": "application/json"})
    url = f"http://127.0.0.1:{port}{PATH}"
    return lambda: client.post(url, content=SENT).content


def h11_client(port: int) -> Callable[[], bytes]:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    state = h11.Connection(h11.CLIENT)
    headers = [
        ("Host", f"127.0.0.1:{port}"),
        ("Content-Type", "application/json"),
        ("Accept", "application/json"),
        ("Content-Length", str(len(SENT))),
    ]

    def ask() -> bytes:
        data = state.send(h11.Request(method="POST", target=PATH, headers=headers)) or b""
        data += state.send(h11.Data(data=SENT)) or b""
        data += state.send(h11.EndOfMessage()) or b""
        connection.sendall(data)
        body = b""
        while True:
            event = state.next_event()
            if event is h11.NEED_DATA:
                state.receive_data(connection.recv(256 << 10))
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                state.start_next_cycle()
                return body

    return ask


def measure(ask: Callable[[], bytes], requests: int) -> tuple[float, float]:
    """Requests per second, and microseconds of the client's processor per request."""
    assert ask() == ANSWER
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(requests):
        ask()
    return requests / (time.perf_counter() - wall), (time.process_time() - processor) / requests * 1e6


def main() -> None:
    arguments = parse_arguments("our HTTP connection against httpx and h11")
    rounds, requests = (3, 500) if arguments.quick else (9, 3000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        makers = {"own": own_client, "h11": h11_client, "httpx": httpx_client}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
        for _ in range(rounds):
            for name, make in makers.items():
                server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
                server.start()
                found[name].append(measure(make(port), requests))
                server.terminate()
                server.join()
    figures: dict[str, float] = {}
    for name, rows in found.items():
        figures[f"{name}_per_s"] = round(median(rate for rate, _ in rows))
        figures[f"{name}_cpu_us"] = round(median(cpu for _, cpu in rows), 1)
        print(
            f"{name:6} {figures[f'{name}_per_s']:8,} requests/s, {figures[f'{name}_cpu_us']:7.1f} us of processor each"
        )
    print_result(figures)


if __name__ == "__main__":
    main()
