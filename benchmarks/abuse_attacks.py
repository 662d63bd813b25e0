"""The attacks of abuse.py, in a separate process of low priority, each at a fixed rate and with bounded numbers.

usage: python benchmarks/abuse_attacks.py      (a line of JSON for the targets, then one per attack)

Attackers use other loopback addresses than the honest clients, as strangers would. A `stranger` knows no token; a
`client` is a hostile client with a valid token.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import random
import resource
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from protocols import HELLO, LOOKUP, http_request, redis_command, wire_frame

ADDRESSES = tuple(f"127.0.0.{66 + number}" for number in range(8))
MOST_KEYS, MOST_REDIS_KEYS, MOST_HTTP_KEYS = 16_384, 8192, 4096  # of one request
HTTP = ("serve", "cube", "agent", "transfer", "coordinator")
FRAMES = ("cube", "pserver")
EVERY_PORT = (*HTTP, "grpc", "pserver")
AT_ONCE = 400  # most connections of an attack at a rate; further ones are not opened
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
JSON_PATHS = {
    "serve": "/v1/models/ctr:predict",
    "cube": "/DictService/seek",
    "agent": "/v1/prepare",
    "transfer": "/v1/rollback",
    "coordinator": "/v1/join",
}


@dataclass
class Field:
    """Where to attack, until when, and the results."""

    ports: dict[str, int]
    token: str
    table: int  # number of the cube's table on the wire
    table_name: str
    keys: list[int]
    until: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def is_on(self) -> bool:
        return time.monotonic() < self.until

    async def wait(self) -> None:
        await asyncio.sleep(max(0.0, self.until - time.monotonic()))

    async def connect(self, target: str, *, small_window: bool = False) -> Streams:
        connection = socket.socket()
        connection.setblocking(False)
        if small_window:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.bind((random.choice(ADDRESSES), 0))
        try:
            await asyncio.wait_for(
                asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.ports[target])), 3.0
            )
        except BaseException:
            connection.close()
            raise
        self.counts["connections"] += 1
        limit = 4096 if small_window else 1 << 16
        return await asyncio.open_connection(sock=connection, limit=limit)


Run = Callable[[Field], Awaitable[None]]


@dataclass(frozen=True)
class Attack:
    name: str
    who: str  # stranger or client
    targets: tuple[str, ...]
    run: Run


ATTACKS: dict[str, Attack] = {}


def attack(name: str, who: str, *targets: str) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        ATTACKS[name] = Attack(name, who, targets, run)
        return run

    return add


async def guarded(at: Field, work: Coroutine[Any, Any, None]) -> None:
    """Ignores connections that a server closes, refuses or resets: that is its defence."""
    try:
        await work
    except (OSError, asyncio.IncompleteReadError, TimeoutError, asyncio.LimitOverrunError):
        at.counts["closed"] += 1


async def many(at: Field, count: int, work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """`count` at the same time, started at no more than 2,000 a second; the attack's time starts once all have."""
    tasks = []
    seconds, at.until = at.until - time.monotonic(), time.monotonic() + 600
    for number in range(count):
        tasks.append(asyncio.create_task(guarded(at, work(number))))
        await asyncio.sleep(0.0005)
    at.until = time.monotonic() + seconds
    await at.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def at_rate(at: Field, rate: float, work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """`rate` a second, with at most AT_ONCE in progress."""
    tasks: set[asyncio.Task[None]] = set()
    began, number = time.monotonic(), 0
    while at.is_on:
        if len(tasks) < AT_ONCE:
            task = asyncio.create_task(guarded(at, work(number)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            at.counts["attempts"] += 1
        number += 1
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def finish(streams: Streams, timeout_s: float = 3.0) -> None:
    """Reads until the server closes or time is up, then closes."""
    reader, writer = streams
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(timeout_s):
            while await reader.read(1 << 16):
                pass
    writer.transport.abort()


async def hold(at: Field, streams: Streams) -> None:
    """Stays connected, reading nothing."""
    try:
        await at.wait()
    finally:
        streams[1].transport.abort()


async def say(at: Field, target: str, data: bytes, timeout_s: float = 3.0) -> None:
    streams = await at.connect(target)
    try:
        streams[1].write(data)
        await asyncio.wait_for(streams[1].drain(), timeout_s)
        await finish(streams, timeout_s)
    finally:
        streams[1].transport.abort()


async def drip(at: Field, target: str, start: bytes, rest: bytes, every_s: float = 0.3) -> None:
    streams = await at.connect(target)
    try:
        streams[1].write(start)
        for number in range(1 << 20):
            if not at.is_on:
                return
            await asyncio.sleep(every_s)
            if streams[0].at_eof() or streams[1].is_closing():
                raise ConnectionResetError
            streams[1].write(rest[number % len(rest) :][:1])
            await streams[1].drain()
    finally:
        streams[1].transport.abort()


# By strangers, on every port


@attack("nothing", "nobody")
async def nothing(at: Field) -> None:
    """The control: how much phases differ on this machine without an attack."""
    await at.wait()


@attack("silent connections", "stranger", *EVERY_PORT)
async def silent(at: Field) -> None:
    async def one(number: int) -> None:
        streams = await at.connect(EVERY_PORT[number % len(EVERY_PORT)])
        try:
            while await streams[0].read(1 << 16):
                pass
            at.counts["closed"] += 1
        finally:
            streams[1].transport.abort()

    await many(at, 600 * len(EVERY_PORT), one)


@attack("slow heads", "stranger", *HTTP)
async def slow_heads(at: Field) -> None:
    async def one(number: int) -> None:
        await drip(at, HTTP[number % len(HTTP)], b"GET /v1/status HTTP/1.1\r\nHost: x\r\nX-A: ", b"a")

    await many(at, 100 * len(HTTP), one)


@attack("slow bodies", "stranger", *HTTP)
async def slow_bodies(at: Field) -> None:
    async def one(number: int) -> None:
        target = HTTP[number % len(HTTP)]
        head = f"POST {JSON_PATHS[target]} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
        await drip(at, target, head.encode() + b"{", b" ")

    await many(at, 100 * len(HTTP), one)


@attack("slow bodies of a client", "client", *HTTP)
async def slow_bodies_with_token(at: Field) -> None:
    async def one(number: int) -> None:
        target = HTTP[number % len(HTTP)]
        request = http_request("POST", JSON_PATHS[target], b" " * 100_000, at.token)
        await drip(at, target, request[:-99_000], b" ")

    await many(at, 100 * len(HTTP), one)


@attack("connect and reset", "stranger", *EVERY_PORT)
async def resets(at: Field) -> None:
    async def one(number: int) -> None:
        streams = await at.connect(EVERY_PORT[number % len(EVERY_PORT)])
        raw: socket.socket = streams[1].get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        streams[1].write(b"GET / HTTP/1.1\r\nHo"[: number % 20])
        streams[1].transport.abort()

    await at_rate(at, 200, one)


@attack("half-closed connections", "stranger", *EVERY_PORT)
async def half_closed(at: Field) -> None:
    async def one(number: int) -> None:
        streams = await at.connect(EVERY_PORT[number % len(EVERY_PORT)])
        streams[1].write(b"POST /v1/status HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"[: 20 + number % 50])
        streams[1].write_eof()
        await hold(at, streams)

    await many(at, 100 * len(EVERY_PORT), one)


@attack("a flood of connections", "stranger", *EVERY_PORT)
async def connections(at: Field) -> None:
    async def one(number: int) -> None:
        streams = await at.connect(EVERY_PORT[number % len(EVERY_PORT)])
        streams[1].transport.abort()

    await at_rate(at, 300, one)


@attack("a flood of tiny requests", "stranger", *HTTP)
async def tiny(at: Field) -> None:
    async def one(number: int) -> None:
        path = ("/healthz", "/nothing", "/v1/status")[number % 3]
        await say(at, HTTP[number % len(HTTP)], http_request("GET", path, Connection="close") * 3)

    await at_rate(at, 100, one)


@attack("random bytes", "stranger", *EVERY_PORT)
async def noise(at: Field) -> None:
    random.seed(7)

    async def one(number: int) -> None:
        await say(at, EVERY_PORT[number % len(EVERY_PORT)], random.randbytes(1 + number * 37 % 3000), 1.0)

    await at_rate(at, 70, one)


@attack("huge heads", "stranger", *HTTP)
async def huge_heads(at: Field) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Long: " + b"a" * (1 << 20)

    async def one(number: int) -> None:
        await say(at, HTTP[number % len(HTTP)], head)

    await at_rate(at, 20, one)


@attack("huge lengths", "stranger", *HTTP)
async def huge_lengths(at: Field) -> None:
    async def one(number: int) -> None:
        target = HTTP[number % len(HTTP)]
        length = (99_999_999_999, (8 << 20) - 1, 1 << 63, 256 << 20)[number % 4]
        head = f"POST {JSON_PATHS[target]} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        await say(at, target, head.encode() + b"{" * 1000)

    await at_rate(at, 50, one)


@attack("huge bodies of a client", "client", "agent", "transfer", "coordinator")
async def huge_bodies(at: Field) -> None:
    """Sends 32 MiB of a body that never ends on each of several connections."""
    targets = ("agent", "transfer", "coordinator")

    async def one(number: int) -> None:
        target = targets[number % 3]
        streams = await at.connect(target)
        head = f"POST {JSON_PATHS[target]} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {at.token}\r\n"
        streams[1].write(head.encode() + b"Content-Type: application/json\r\nContent-Length: 268435455\r\n\r\n")
        try:
            for _ in range(32):
                streams[1].write(b" " * (1 << 20))
                await streams[1].drain()
                await asyncio.sleep(0.05)
            await at.wait()
        finally:
            streams[1].transport.abort()

    await many(at, 18, one)


@attack("wrong tokens", "stranger", *EVERY_PORT)
async def wrong_tokens(at: Field) -> None:
    async def one(number: int) -> None:
        wrong = f"wrong-token-{number:020d}"
        kind = number % 7
        if kind < len(HTTP):
            await say(at, HTTP[kind], http_request("GET", "/v1/status", b"", wrong, Connection="close"))
        elif kind == 5:
            await say(at, "cube", redis_command("AUTH", wrong), 1.0)
        else:
            await say(at, FRAMES[number // 7 % 2], wire_frame(HELLO, wrong.encode()), 1.0)

    await at_rate(at, 140, one)


@attack("frames with huge lengths", "stranger", "serve", "grpc", *FRAMES)
async def huge_frames(at: Field) -> None:
    frames = (
        ("cube", wire_frame(LOOKUP, b"x" * 100, announced=0xFFFFFFFF)),
        ("pserver", wire_frame(HELLO, b"x" * 100, announced=0xFFFFFFFF)),
        ("pserver", wire_frame(HELLO, b"x" * 100, announced=200 << 20)),
        ("serve", b"PRPC" + b"\xff" * 8),
        ("serve", b"PRPC" + struct.pack(">II", 7 << 20, 100) + b"x" * 100),
        ("cube", b"*1\r\n$536870912\r\nx"),
        ("grpc", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"),
    )

    async def one(number: int) -> None:
        await say(at, *frames[number % len(frames)], 1.0)

    await at_rate(at, 70, one)


# By hostile clients


@attack("deep JSON", "client", *HTTP)
async def deep_json(at: Field) -> None:
    bodies = (b"[" * 100_000, b'{"samples":' * 20_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000)

    async def one(number: int) -> None:
        target = HTTP[number % len(HTTP)]
        await say(at, target, http_request("POST", JSON_PATHS[target], bodies[number % 3], at.token))

    await at_rate(at, 30, one)


@cache
def output_bomb() -> bytes:
    """1 GiB of zeros in about 1 MiB, which claims a small size at its end."""
    packed = gzip.compress(b" " * (256 << 20), 9)
    return packed[:-4] + struct.pack("<I", 1000)


@cache
def work_bomb() -> bytes:
    """2 MiB of empty blocks: four of them are 40 bits."""
    bits = sum(1 << (10 * block + 1) for block in range(4))
    blocks = bits.to_bytes(5, "little") * ((2 << 20) // 5)
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + blocks + b"\x03\x00" + bytes(8)


@attack("gzip that unpacks to much", "client", "serve")
async def gzip_output(at: Field) -> None:
    request = http_request("POST", JSON_PATHS["serve"], output_bomb(), at.token, Content_Encoding="gzip")

    async def one(number: int) -> None:
        await say(at, "serve", request)

    await at_rate(at, 5, one)


@attack("gzip of empty blocks", "client", "serve")
async def gzip_work(at: Field) -> None:
    request = http_request("POST", JSON_PATHS["serve"], work_bomb(), at.token, Content_Encoding="gzip")

    async def one(number: int) -> None:
        await say(at, "serve", request)

    await at_rate(at, 1, one)


@cache
def many_names() -> bytes:
    feed = {f"n{number}": [[1]] for number in range(10_000)}
    return json.dumps({"feed": [feed] * 40, "fetch": ["score"]}).encode()[: 8 << 20]


@attack("10,000 names in Paddle's JSON", "client", "serve")
async def paddle_names(at: Field) -> None:
    request = http_request("POST", "/ctr/prediction", many_names(), at.token)

    async def one(number: int) -> None:
        await say(at, "serve", request)

    await at_rate(at, 1, one)


async def fill(at: Field, target: str, hello: bytes, request: bytes, count: int, connections: int) -> None:
    """Sends requests with large answers and reads none."""

    async def one(number: int) -> None:
        streams = await at.connect(target, small_window=True)
        streams[1].transport.pause_reading()  # type: ignore[attr-defined]
        try:
            streams[1].write(hello)
            for _ in range(count):
                streams[1].write(request)
                await streams[1].drain()
                at.counts["attempts"] += 1
            await at.wait()
        finally:
            streams[1].transport.abort()

    await many(at, connections, one)


def repeat_keys(at: Field, count: int) -> list[int]:
    return (at.keys * (count // len(at.keys) + 1))[:count]


@attack("unread answers, wire", "client", "cube")
async def unread_wire(at: Field) -> None:
    body = struct.pack(f"<{MOST_KEYS}Q", *repeat_keys(at, MOST_KEYS))
    hello = wire_frame(HELLO, at.token.encode())
    await fill(at, "cube", hello, wire_frame(LOOKUP, body, at.table), 10, 40)


@attack("unread answers, Redis", "client", "cube")
async def unread_redis(at: Field) -> None:
    request = redis_command("MGET", *map(str, repeat_keys(at, MOST_REDIS_KEYS)))
    await fill(at, "cube", redis_command("AUTH", at.token), request, 6, 60)


@attack("unread answers, DictService/seek", "client", "cube")
async def unread_seek(at: Field) -> None:
    body = json.dumps({"keys": repeat_keys(at, MOST_HTTP_KEYS), "version_required": True}).encode()
    request = http_request("POST", f"/DictService/seek?table={at.table_name}", body, at.token)
    await fill(at, "cube", b"", request, 10, 40)


@attack("unread answers, serve", "client", "serve")
async def unread_serve(at: Field) -> None:
    await fill(at, "serve", b"", http_request("GET", "/openapi.json", b"", at.token), 100, 20)


@attack("half frames", "client", "cube", "pserver")
async def half_frames(at: Field) -> None:
    """Sends 8 MiB of a frame that never ends, on many connections."""

    async def one(number: int) -> None:
        target = FRAMES[number % 2]
        streams = await at.connect(target)
        try:
            streams[1].write(wire_frame(HELLO, at.token.encode()))
            streams[1].write(wire_frame(LOOKUP if target == "cube" else 18, announced=15 << 20))
            for _ in range(32):
                streams[1].write(bytes(1 << 18))
                await streams[1].drain()
                await asyncio.sleep(0.02)
            await at.wait()
        finally:
            streams[1].transport.abort()

    await many(at, 40, one)


@attack("Redis garbage", "client", "cube")
async def redis_garbage(at: Field) -> None:
    auth = redis_command("AUTH", at.token)
    garbage = (
        redis_command("MULTI") * 1000 + redis_command("EXEC"),
        b"*1048576\r\n" + b"$1\r\na\r\n" * 5000,
        b"*1\r\n" * 10_000,
        b"*-1\r\n*0\r\n\r\n" * 1000,
        b"GET " + b"9" * 60_000 + b"\r\n",
        b"$5\r\nhello\r\n" * 500,
        redis_command("CONFIG", "SET", "dir", "/tmp") * 100 + redis_command("FLUSHALL") * 100,
        redis_command("SUBSCRIBE", "a") * 500,
    )

    async def one(number: int) -> None:
        await say(at, "cube", auth + garbage[number % len(garbage)], 1.0)

    await at_rate(at, 40, one)


# gRPC


@contextlib.asynccontextmanager
async def grpc_channel(at: Field) -> AsyncIterator[Any]:
    import grpc.aio

    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{at.ports['grpc']}", options) as channel:
        yield channel


@attack("gRPC calls without a message", "stranger", "grpc")
async def grpc_silent(at: Field) -> None:
    import grpc

    async def never() -> AsyncIterator[bytes]:
        await asyncio.sleep(3600)
        yield b""

    async def one(channel: Any, method: str) -> None:
        try:
            await channel.stream_unary(method)(never())
        except grpc.RpcError:
            at.counts["closed"] += 1

    async with grpc_channel(at) as channel:
        methods = ("/grpc.health.v1.Health/Check", "/inference.GRPCInferenceService/ModelInfer")
        tasks = [asyncio.create_task(one(channel, methods[number % 2])) for number in range(140)]
        at.counts["attempts"] += len(tasks)
        await at.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@attack("gRPC messages too large", "client", "grpc")
async def grpc_oversize(at: Field) -> None:
    import grpc

    message = bytes(32 << 20)
    async with grpc_channel(at) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        while at.is_on:
            at.counts["attempts"] += 1
            with contextlib.suppress(grpc.RpcError):
                await infer(message, timeout=2, metadata=[("authorization", f"Bearer {at.token}")])
            await asyncio.sleep(0.5)


def prepare() -> None:
    """Prepares expensive data before the clock starts."""
    output_bomb()
    work_bomb()
    many_names()


def main() -> None:
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16_384, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    at = Field(**json.loads(sys.stdin.readline()))
    prepare()
    print(json.dumps([[one.name, one.who, one.targets] for one in ATTACKS.values()]), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        at.counts, at.until = Counter(), time.monotonic() + order["seconds"]
        asyncio.run(ATTACKS[order["attack"]].run(at))  # type: ignore[arg-type]
        print(json.dumps(at.counts), flush=True)


if __name__ == "__main__":
    main()
