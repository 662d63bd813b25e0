"""Attacks of strangers, who know no token."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

from abuse_field import (
    EVERY_PORT,
    FRAMES,
    HTTP,
    JSON_PATHS,
    Attacks,
    Field,
    at_rate,
    drip,
    grpc_channel,
    hold,
    many,
    say,
)
from protocols import HELLO, LOOKUP, http_request, redis_command, wire_frame

ATTACKS = Attacks()
attack = ATTACKS.add


@attack("nothing", "nobody")
async def nothing(at: Field) -> None:
    """The control: what the phases of this machine differ by, without an attack."""
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
