"""A client of prediction servers, for threads.

with PredictClient("http://127.0.0.1:8500", model="ctr") as client:
    prediction = client.predict(user={"C1": "68fd1e64"}, candidates=[{"C2": "a"}, {"C2": "b"}])
    print(prediction.scores, prediction.version)
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from elasticctr.errors import FailedPrecondition
from elasticctr.serve.client.base import BaseClient
from elasticctr.serve.client.call import Call
from elasticctr.serve.client.connection import Connection
from elasticctr.serve.client.http1 import HttpResponse, TransportError
from elasticctr.serve.client.prediction import Prediction, Sample
from elasticctr.serve.client.question import make_question
from elasticctr.serve.client.routing import Endpoint


class PredictClient(BaseClient):
    """Thread-safe; share one. Every error is one of `elasticctr.errors`: what the server said, Unavailable (nobody
    answers), DeadlineExceeded. A forked child that uses one opens connections of its own."""

    def predict(
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
        """Scores samples, one user's candidates, or raw log lines of `format`.

        With `values="feasigns"` sparse values are feasigns and dense ones already transformed. `fields` are further
        top-level fields of the request, which sticky variants can use; `key` decides this client's variant instead.
        """
        question, timeout = make_question(
            self._router,
            self.settings,
            (samples, user, candidates, lines),
            {"format": format, "values": values, "ignore_unknown": ignore_unknown},
            (model, version, id, key, fields, timeout_s),
        )
        if self._is_closed:
            raise FailedPrecondition("this prediction client is closed")
        return self._run(Call(self._router, self.settings, question, timeout))

    def _run(self, call: Call) -> Prediction:
        flights: dict[Connection, Endpoint] = {}
        hedge_at_s = time.monotonic() + self.settings.hedge_ms / 1000 if self.settings.hedge_ms else call.deadline_s
        try:
            self._start(call, flights)
            while True:
                if not flights:
                    time.sleep(call.pause_s())
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
                prediction = self._wait(call, flights, min(call.deadline_s, hedge_at_s))
                if prediction is not None:
                    return prediction
        finally:
            for endpoint in self._abandon(flights):
                call.drop(endpoint)

    def _start(self, call: Call, flights: dict[Connection, Endpoint]) -> None:
        endpoint = call.begin()
        try:
            flights[self._open(call, endpoint, may_reuse=True)] = endpoint
        except TransportError as e:
            call.fail(endpoint, e)

    def _open(self, call: Call, endpoint: Endpoint, *, may_reuse: bool) -> Connection:
        request = call.bytes_for(endpoint)
        while may_reuse and endpoint.idle:
            try:
                connection: Connection = endpoint.idle.pop()
            except IndexError:
                break
            if connection.pid != os.getpid():
                continue
            try:
                connection.is_reused = True
                connection.send(request)
                return connection
            except TransportError:
                connection.close()
        tls = self._tls if endpoint.address.is_tls else None
        connection = Connection(endpoint.address, tls, min(self.settings.connect_ms / 1000, call.left_s))
        try:
            connection.send(request)
        except TransportError:
            connection.close()
            raise
        return connection

    def _wait(self, call: Call, flights: dict[Connection, Endpoint], until_s: float) -> Prediction | None:
        poll = select.poll()
        for connection in flights:
            poll.register(connection.socket, connection.events)
            if not connection.is_connected:
                until_s = min(until_s, connection.connect_by_s)
        ready = {fd for fd, _ in poll.poll(max(0.0, until_s - time.monotonic()) * 1000 + 0.05)}
        for connection, endpoint in list(flights.items()):
            response: HttpResponse | None = None
            try:
                if connection.socket.fileno() in ready:
                    response = connection.advance()
                elif not connection.is_connected and time.monotonic() >= connection.connect_by_s:
                    raise TransportError("did not accept the connection in time")
            except TransportError as e:
                connection.close()
                del flights[connection]
                self._recover(call, flights, endpoint, connection, e)
                continue
            if response is not None:
                del flights[connection]
                self._keep(endpoint, connection, response)
                prediction = call.take(endpoint, response)
                if prediction is not None:
                    return prediction
        return None

    def _recover(
        self,
        call: Call,
        flights: dict[Connection, Endpoint],
        endpoint: Endpoint,
        connection: Connection,
        error: TransportError,
    ) -> None:
        """Reopens a connection that was idle too long, without counting an attempt."""
        if connection.was_stale:
            try:
                flights[self._open(call, endpoint, may_reuse=False)] = endpoint
                return
            except TransportError as e:
                error = e
        call.fail(endpoint, error)

    def _keep(self, endpoint: Endpoint, connection: Connection, response: HttpResponse) -> None:
        if response.keep_alive and not self._is_closed and len(endpoint.idle) < self.settings.idle_connections:
            endpoint.idle.append(connection)
        else:
            connection.close()

    @staticmethod
    def _abandon(flights: dict[Connection, Endpoint]) -> list[Endpoint]:
        """Drops attempts whose answers are no longer wanted."""
        for connection in flights:
            connection.close()
        endpoints = list(flights.values())
        flights.clear()
        return endpoints

    def close(self) -> None:
        """Closes idle connections. Calls in other threads still finish."""
        self._is_closed = True
        for variant in self._router.variants:
            for endpoint in variant.endpoints:
                while endpoint.idle:
                    endpoint.idle.pop().close()

    def __enter__(self) -> PredictClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
