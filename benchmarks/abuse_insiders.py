"""Attacks of clients gone bad, with a token that is right."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import struct
from functools import cache

from abuse_field import FRAMES, HTTP, JSON_PATHS, Attacks, Field, at_rate, drip, grpc_channel, many, say
from protocols import HELLO, LOOKUP, http_request, redis_command, wire_frame

ATTACKS = Attacks()
attack = ATTACKS.add

MOST_KEYS, MOST_REDIS_KEYS, MOST_HTTP_KEYS = 16_384, 8192, 4096  # of one request


@attack("slow bodies of a client", "client", *HTTP)
async def slow_bodies_with_token(at: Field) -> None:
    async def one(number: int) -> None:
        target = HTTP[number % len(HTTP)]
        request = http_request("POST", JSON_PATHS[target], b" " * 100_000, at.token)
        await drip(at, target, request[:-99_000], b" ")

    await many(at, 100 * len(HTTP), one)


@attack("huge bodies of a client", "client", "agent", "transfer", "coordinator")
async def huge_bodies(at: Field) -> None:
    """32 MiB on each of some connections, of a body that never ends."""
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


@attack("deep JSON", "client", *HTTP)
async def deep_json(at: Field) -> None:
    bodies = (b"[" * 100_000, b'{"samples":' * 20_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000)

    async def one(number: int) -> None:
        target = HTTP[number % len(HTTP)]
        await say(at, target, http_request("POST", JSON_PATHS[target], bodies[number % 3], at.token))

    await at_rate(at, 30, one)


@cache
def output_bomb() -> bytes:
    """1 GiB of nothing; about a MiB, which ends with a small size."""
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
    """Requests with large answers that nobody reads."""

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
    """8 MiB of a frame that never ends, on many connections."""

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
    """What takes time to make is made before the clock runs."""
    output_bomb()
    work_bomb()
    many_names()
