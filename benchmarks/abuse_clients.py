"""The honest clients of abuse.py: steady closed loops in a separate process, with a thread per protocol.

usage: python benchmarks/abuse_clients.py      (commands are lines of JSON, answered with one line each)

A request fails if it takes longer than TIMEOUT_S, is refused or ends with an error. A connection is kept for some
requests and then replaced, which reveals a server that accepts no connections; a kept connection that turns out to be
closed is reopened once, as in every client library.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import protocols
from protocols import HELLO, PING, Refused

EVERY_S = 0.012  # of each loop; a request that takes longer delays the next
TIMEOUT_S = 5.0
REQUESTS_PER_CONNECTION = 10
CALM, LATE_S = 5, 0.5
Connection = Any


class Talk:
    """A protocol's client: `open` returns a connection, `ask` sends one request and reads its answer."""

    def __init__(self, open_: Callable[[], Connection], ask: Callable[[Connection], None]) -> None:
        self.open, self.ask = open_, ask


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def talk_http(address: str, request: bytes) -> Talk:
    def ask(connection: Connection) -> None:
        connection.sendall(request)
        status, body = protocols.read_http(connection)
        if status != 200:
            raise Refused(f"{status} {body[:200]!r}")

    return Talk(lambda: connect(address), ask)


def talk_brpc(address: str, request: bytes) -> Talk:
    def ask(connection: Connection) -> None:
        connection.sendall(request)
        protocols.read_brpc(connection)

    return Talk(lambda: connect(address), ask)


def talk_redis(address: str, token: str, request: bytes) -> Talk:
    def open_() -> Connection:
        connection = connect(address)
        file = connection.makefile("rwb")
        connection.close()  # the file keeps it
        file.write(protocols.redis_command("AUTH", token))
        file.flush()
        protocols.read_redis(file)
        return file

    def ask(file: Connection) -> None:
        file.write(request)
        file.flush()
        protocols.read_redis(file)

    return Talk(open_, ask)


def talk_frames(address: str, token: str, request: bytes) -> Talk:
    def open_() -> Connection:
        connection = connect(address)
        connection.sendall(protocols.wire_frame(HELLO, token.encode()))
        protocols.read_wire(connection)
        return connection

    def ask(connection: Connection) -> None:
        connection.sendall(request)
        protocols.read_wire(connection)

    return Talk(open_, ask)


def talk_grpc(address: str, token: str, message: bytes) -> Talk:
    import grpc

    class Channel:
        def __init__(self) -> None:
            # Channels of one process share connections unless told otherwise.
            self.channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
            self.infer = self.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        def close(self) -> None:
            self.channel.close()

    def ask(connection: Connection) -> None:
        try:
            connection.infer(message, timeout=TIMEOUT_S, metadata=[("authorization", f"Bearer {token}")])
        except grpc.RpcError as e:
            raise Refused(f"{e.code().name}: {e.details()}") from None

    return Talk(Channel, ask)


def make_talk(settings: dict[str, Any]) -> Talk:
    address, token = settings["address"], settings["token"]
    request = bytes.fromhex(settings["request"])
    match settings["protocol"]:
        case "http":
            return talk_http(address, request)
        case "brpc":
            return talk_brpc(address, request)
        case "redis":
            return talk_redis(address, token, request)
        case "grpc":
            return talk_grpc(address, token, request)
        case _:
            return talk_frames(address, token, request or protocols.wire_frame(PING, b"ping"))


class Loop:
    """One client. Latencies and failures by phase."""

    def __init__(self, name: str, talk: Talk) -> None:
        self.name = name
        self._talk = talk
        self.phase = "start"
        self.is_over = False
        self.latencies: dict[str, list[float]] = defaultdict(list)
        self.failed: dict[str, list[str]] = defaultdict(list)
        self._good = 0  # consecutive requests answered in time

    @property
    def is_calm(self) -> bool:
        return self._good >= CALM

    def run(self) -> None:
        connection: Connection = None
        used = 0
        while not self.is_over:
            began = time.perf_counter()
            phase = self.phase
            try:
                if connection is not None and used >= REQUESTS_PER_CONNECTION:
                    connection.close()
                    connection = None
                is_new = connection is None
                if connection is None:
                    connection, used = self._talk.open(), 0
                try:
                    self._talk.ask(connection)
                except (ConnectionError, BrokenPipeError):
                    if is_new:
                        raise
                    connection.close()
                    connection, used = self._talk.open(), 0
                    self._talk.ask(connection)
                used += 1
                self._good += 1
            except (OSError, ValueError, LookupError, Refused) as e:
                self._good = 0
                self.failed[phase].append(f"{type(e).__name__}: {e}"[:200])
                if connection is not None:
                    connection.close()
                connection = None
            took = time.perf_counter() - began
            if took > LATE_S:
                self._good = 0
            self.latencies[phase].append(took)
            time.sleep(max(0.0, EVERY_S - took))


def main() -> None:
    loops = [Loop(one["name"], make_talk(one)) for one in json.loads(sys.stdin.readline())]
    threads = [threading.Thread(target=loop.run, daemon=True) for loop in loops]
    for thread in threads:
        thread.start()
    print("{}", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "phase" in command:
            for loop in loops:
                loop.phase = command["phase"]
            print("{}", flush=True)
            continue
        if "calm" in command:
            print(json.dumps(all(loop.is_calm for loop in loops)), flush=True)
            continue
        for loop in loops:
            loop.is_over = True
        for thread in threads:
            thread.join(3 * TIMEOUT_S)
        found = {loop.name: {"latencies": loop.latencies, "failed": loop.failed} for loop in loops}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
