"""`PredictClient` for asyncio. Belongs to one event loop: make it there."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from elasticctr.errors import FailedPrecondition
from elasticctr.serve.client.base import BaseClient
from elasticctr.serve.client.call import Call
from elasticctr.serve.client.http1 import HttpResponse, ResponseReader, TransportError
from elasticctr.serve.client.prediction import Prediction, Sample
from elasticctr.serve.client.question import make_question
from elasticctr.serve.client.routing import Endpoint


class _Wire(asyncio.Protocol):
    """A connection; one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_lost = False
        self.reader = ResponseReader()
        self._answer: asyncio.Future[HttpResponse] | None = None

    def ask(self, request: bytes) -> asyncio.Future[HttpResponse]:
        assert self.transport is not None
        self.reader = ResponseReader()
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._answer

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # it sends data unasked
            return
        try:
            response = self.reader.feed(data)
        except TransportError as e:
            self._answer.set_exception(e)
            self.close()
            return
        if response is not None:
            self._answer.set_result(response)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if self._answer is None or self._answer.done():
            return
        try:
            self._answer.set_result(self.reader.feed_end())
        except TransportError as e:
            self._answer.set_exception(e)


class AsyncPredictClient(BaseClient):
    """Arguments, errors and answers are those of `Client`."""

    async def predict(
        self,
        samples: Iterable[Sample] | Sample | None = None,
        *,
        user: Sample | None = None,
        candidates: Iterable[Sample] | None = None,
        lines: str | Iterable[str] | None = None,
        format: str | None = None,
        values: str | None = None,
        model: str | None = None,
        version: int | None = None,
        id: str | None = None,
        key: str | None = None,
        fields: Mapping[str, Any] | None = None,
        ignore_unknown: bool | None = None,
        timeout_s: float | None = None,
    ) -> Prediction:
        question, timeout = make_question(
            self._router,
            self.settings,
            (samples, user, candidates, lines),
            {"format": format, "values": values, "ignore_unknown": ignore_unknown},
            (model, version, id, key, fields, timeout_s),
        )
        if self._is_closed:
            raise FailedPrecondition("this prediction client is closed")
        return await self._run(Call(self._router, self.settings, question, timeout))

    async def _run(self, call: Call) -> Prediction:
        flights: dict[asyncio.Task[HttpResponse], Endpoint] = {}
        hedge_at_s = time.monotonic() + self.settings.hedge_ms / 1000 if self.settings.hedge_ms else call.deadline_s
        try:
            self._start(call, flights)
            while True:
                if not flights:
                    await asyncio.sleep(call.pause_s())
                    self._start(call, flights)
                    continue
                now_s = time.monotonic()
                if now_s >= call.deadline_s:
                    raise call.expire(self._abandon(flights))
                if now_s >= hedge_at_s:
                    hedge_at_s = call.deadline_s
                    if call.may_hedge():
                        self._start(call, flights)
                        continue
                timeout = min(call.deadline_s, hedge_at_s) - now_s
                done, _ = await asyncio.wait(flights, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    endpoint = flights.pop(task)
                    try:
                        prediction = call.take(endpoint, task.result())
                    except TransportError as e:
                        call.fail(endpoint, e)
                        continue
                    if prediction is not None:
                        return prediction
        finally:
            for endpoint in self._abandon(flights):
                call.drop(endpoint)

    def _start(self, call: Call, flights: dict[asyncio.Task[HttpResponse], Endpoint]) -> None:
        endpoint = call.begin()
        flights[asyncio.ensure_future(self._attempt(call, endpoint))] = endpoint

    async def _attempt(self, call: Call, endpoint: Endpoint) -> HttpResponse:
        request = call.bytes_for(endpoint)
        while endpoint.idle:
            wire: _Wire = endpoint.idle.pop()
            if wire.is_lost:
                continue
            try:
                return await self._ask(endpoint, wire, request)
            except TransportError:
                # Finding an idle connection closed costs no attempt.
                if not wire.reader.is_empty:
                    raise
        return await self._ask(endpoint, await self._connect(endpoint), request)

    async def _ask(self, endpoint: Endpoint, wire: _Wire, request: bytes) -> HttpResponse:
        is_kept = False
        try:
            response = await wire.ask(request)
            is_kept = response.keep_alive and not wire.is_lost and not self._is_closed
            is_kept = is_kept and len(endpoint.idle) < self.settings.idle_connections
            if is_kept:
                endpoint.idle.append(wire)
            return response
        finally:
            if not is_kept:
                wire.close()

    async def _connect(self, endpoint: Endpoint) -> _Wire:
        address = endpoint.address
        tls = self._tls if address.is_tls else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.settings.connect_ms / 1000):
                _, wire = await loop.create_connection(
                    _Wire, address.host, address.port, ssl=tls, server_hostname=address.host if tls else None
                )
                return wire
        except TimeoutError:
            raise TransportError("did not accept the connection in time") from None
        except ssl.SSLError as e:
            raise TransportError(f"TLS failed: {e.reason or e}") from None
        except OSError as e:
            reason = "refused the connection" if isinstance(e, ConnectionRefusedError) else e.strerror or str(e)
            raise TransportError(reason) from None

    @staticmethod
    def _abandon(flights: dict[asyncio.Task[HttpResponse], Endpoint]) -> list[Endpoint]:
        for task in flights:
            task.cancel()
        endpoints = list(flights.values())
        flights.clear()
        return endpoints

    async def close(self) -> None:
        self._is_closed = True
        for variant in self._router.variants:
            for endpoint in variant.endpoints:
                while endpoint.idle:
                    endpoint.idle.pop().close()
        await asyncio.sleep(0)  # lets transports close their sockets

    async def __aenter__(self) -> AsyncPredictClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
