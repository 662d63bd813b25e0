"""Serving HTTP: JSON bodies with limits, one shape of errors, a server that can be stopped.

Handlers are plain functions, each on a thread of its own; an error of the tree becomes its HTTP status.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from elasticctr.config.tls import TlsSettings, served
from elasticctr.errors import (
    ConfigError,
    DataError,
    DeadlineExceeded,
    ElasticCTRError,
    InternalError,
    Unauthorized,
    Unavailable,
    class_of_http,
)
from elasticctr.net.access import Tokens
from elasticctr.net.answers import retry_after
from elasticctr.net.certificates import watched
from elasticctr.net.connections import KEEP_ALIVE_S, Connections, ControlLoop, guard
from elasticctr.net.gate import AccessGate
from elasticctr.net.tls import renew, server_context

Body = dict[str, Any]
MAX_BODY_BYTES = 1 << 20
BODY_S = 30.0  # for a body to arrive; long ones get more, at BODY_BYTES_S
BODY_BYTES_S = 1 << 20


class TooLarge(DataError):
    """A body over its route's limit. The rest of it is not read."""

    http_status = 413


def answer_error(error: ElasticCTRError, status: int | None = None) -> JSONResponse:
    headers = retry_after(error)
    if isinstance(error, TooLarge | DeadlineExceeded):
        headers["Connection"] = "close"
    if isinstance(error, Unauthorized) and status is None:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error.describe(), status or error.http_status, headers)


def get(path: str, handler: Callable[[Request], Any]) -> Route:
    """A route whose handler returns a JSON-able value, or a Response."""

    async def endpoint(request: Request) -> Response:
        return _answer(await run_in_threadpool(handler, request))

    return Route(path, endpoint, methods=["GET"])


def post(path: str, handler: Callable[[Body], Any], *, max_bytes: int = MAX_BODY_BYTES) -> Route:
    """A route whose handler is given the JSON object of the body."""

    async def endpoint(request: Request) -> Response:
        return _answer(await run_in_threadpool(handler, await _read_object(request, max_bytes)))

    return Route(path, endpoint, methods=["POST"])


def accepted(value: Mapping[str, Any]) -> JSONResponse:
    """202: the work continues in the background."""
    return JSONResponse(value, 202)


def make_app(routes: list[Route], tokens: Tokens) -> ASGIApp:
    health = Route("/healthz", lambda _: PlainTextResponse("ok\n"), methods=["GET"])
    app = Starlette(
        routes=[health, *routes],
        exception_handlers={ElasticCTRError: _explain, HTTPException: _explain_http, Exception: _explain_bug},
    )
    return AccessGate(app, tokens, answer_error)


async def _read_object(request: Request, max_bytes: int) -> Body:
    too_large = f"{request.url.path}: a request body over {max_bytes} bytes"
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > max_bytes:
        raise TooLarge(too_large)
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_S + int(announced) / BODY_BYTES_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > max_bytes:
                    raise TooLarge(too_large)
        value = json.loads(data)
    except TimeoutError:
        raise DeadlineExceeded(f"{request.url.path}: the request body did not arrive in time") from None
    except ClientDisconnect:
        raise DataError("the client disconnected in the middle of its request") from None
    except (ValueError, RecursionError):
        raise DataError("the request body is not valid JSON") from None
    if not isinstance(value, dict):
        raise DataError("the request body must be a JSON object")
    return value


def _answer(value: Any) -> Response:
    return value if isinstance(value, Response) else JSONResponse(value)


async def _explain(_: Request, error: Exception) -> Response:
    assert isinstance(error, ElasticCTRError)
    return answer_error(error)


async def _explain_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = class_of_http(error.status_code)(f"{request.method} {request.url.path}: {error.detail}")
    return JSONResponse(problem.describe(), error.status_code)


async def _explain_bug(_: Request, error: Exception) -> Response:
    return answer_error(InternalError(f"{type(error).__name__}: {error}"))


class _Server(uvicorn.Server):
    """Returns on SIGINT and SIGTERM; uvicorn itself would send the signal again before anyone can clean up."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)


class WebServer:
    """Serves an app until `stop`. Binds at construction, so the port is known before the first answer."""

    def __init__(self, app: ASGIApp, host: str, port: int, *, tls: TlsSettings | None = None) -> None:
        self._tls = served(tls)
        context = None if self._tls is None else server_context(self._tls)
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.scheme = "http" if context is None else "https"
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            http=guard(Connections()),
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=2,
        )
        config.load()
        config.ssl = context
        self._server = _Server(config)

    def run(self) -> None:
        """Returns after SIGINT, SIGTERM (in the main thread) or `stop`."""
        with watched(self._tls, [self._renew]), asyncio.Runner(loop_factory=ControlLoop) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))

    def _renew(self) -> None:
        context = self._server.config.ssl
        assert self._tls is not None and context is not None
        renew(context, self._tls)

    def stop(self) -> None:
        self._server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by connections. Without it the body of an answer waits up to 40 ms for its head to be acknowledged.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except socket.gaierror as e:
        raise ConfigError(
            f"cannot listen at {host!r}: {e.strerror}; give an address of this machine as --host"
        ) from None
    except OSError as e:
        raise Unavailable(
            f"cannot listen at {host}:{port}: {e.strerror or e}; choose another --port or --host"
        ) from None
    except (OverflowError, UnicodeError):
        raise ConfigError(f"cannot listen at {host!r}, port {port}: ports go from 0 to 65535") from None
    return listener
