"""What every attack is made of: where to connect, how many at a time or per second, what is counted."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

ADDRESSES = tuple(f"127.0.0.{66 + number}" for number in range(8))
HTTP = ("serve", "cube", "agent", "transfer", "coordinator")
FRAMES = ("cube", "pserver")
EVERY_PORT = (*HTTP, "grpc", "pserver")
AT_ONCE = 400  # connections of an attack at a rate, at most; more are not begun
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
    """Where to attack, until when, and what came of it."""

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


class Attacks(dict[str, Attack]):
    """The attacks of one module, in the order they are written."""

    def add(self, name: str, who: str, *targets: str) -> Callable[[Run], Run]:
        def remember(run: Run) -> Run:
            self[name] = Attack(name, who, targets, run)
            return run

        return remember


async def guarded(at: Field, work: Coroutine[Any, Any, None]) -> None:
    """Servers that close, refuse or reset are doing their work."""
    try:
        await work
    except (OSError, asyncio.IncompleteReadError, TimeoutError, asyncio.LimitOverrunError):
        at.counts["closed"] += 1


async def many(at: Field, count: int, work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """`count` at the same time, begun at 2,000 a second at most; the attack's time counts from when all are begun."""
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
    """`rate` a second; no more than AT_ONCE under way."""
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
    """Reads what comes until the server closes or time is up, then closes."""
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


@contextlib.asynccontextmanager
async def grpc_channel(at: Field) -> AsyncIterator[Any]:
    import grpc.aio

    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{at.ports['grpc']}", options) as channel:
        yield channel
