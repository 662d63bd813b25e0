"""KServe V2 over gRPC, on its own port. grpcio handles HTTP/2; a prediction's bytes go unchanged to the native engine
and the answer's bytes back, with the GIL released in between. The few other calls are answered here.

    grpc_server = GrpcServer(GrpcOptions(port=8501), server.native, fleet)
    grpc_server.start()
    ...
    grpc_server.stop(drain_s=5)

Threads: grpcio uses one of `threads` for each call in progress. Calls are handled as streams of one message, so that a
call without the token is refused before anything is read, and one whose message does not arrive is cut. Calls that
need no token (health, refusals) have a few threads of their own, so they cannot block predictions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from elasticctr.errors import ConfigError, DataError, ElasticCTRError, InternalError, Unauthorized, Unavailable
from elasticctr.serve import protobuf
from elasticctr.serve.kserve import metadata as kserve

log = logging.getLogger(__name__)

_SERVICE = "inference.GRPCInferenceService"
_HEALTH = "/grpc.health.v1.Health/Check"
_CUT_EVERY_S = 0.5
_DOOR_THREADS = 8
_HEALTH_WAITS = 4  # health checks that may wait for their message at the same time, and how long
_HEALTH_S = 1.0
_STREAMS = 256  # calls in progress on one connection; further ones wait at the client
_FOREVER_S = 1e6  # grpcio gives a call without a deadline one in the far future
_MAX_TIMEOUT_MS = 600_000
_MAX_DETAILS = 500  # characters of an error: it is sent in a header of 8 KiB, with up to 12 bytes each


class GrpcBackend(Protocol):
    """The part of _native.PredictServer that is used here."""

    def call(self, codec: str, body: bytes, *, timeout_ms: int = 0, peer: str = "") -> bytes: ...

    def matches(self, token: str) -> bool: ...

    def metrics(self) -> str: ...


@dataclass(frozen=True)
class GrpcOptions:
    host: str = "127.0.0.1"
    port: int = 8501  # 0: any free one
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    body_mib: float = 8
    threads: int = 64
    waiting: int = 500  # calls beyond this, running or waiting, are refused at once
    request_timeout_s: float = 15  # time for a call's message to arrive


class GrpcServer:
    """Raises ConfigError if grpcio is not installed, Unavailable if the address is taken."""

    def __init__(self, options: GrpcOptions, engine: GrpcBackend, fleet: kserve.ModelDirectory) -> None:
        self._options, self._engine, self._fleet = options, engine, fleet
        self._grpc = _import_grpc()
        self._codes = {code.value[0]: code for code in self._grpc.StatusCode}
        self._arriving = _Arriving()
        self._door = ThreadPoolExecutor(_DOOR_THREADS, thread_name_prefix="grpc-door")
        self._health_waits = threading.Semaphore(_HEALTH_WAITS)
        self._methods = self._make_methods()
        self._certificate_lock = threading.Lock()
        self._new_certificate: Any = None  # not yet in use by the port
        self._refusal = self._at_the_door(self._refuse)
        self._server = self._grpc.server(
            ThreadPoolExecutor(options.threads, thread_name_prefix="grpc"),
            handlers=(self,),
            maximum_concurrent_rpcs=options.waiting,
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", int(options.body_mib * (1 << 20))),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", _STREAMS),
                ("grpc.keepalive_time_ms", 30_000),  # notices a peer that is gone
                ("grpc.keepalive_timeout_ms", 10_000),
            ),
        )
        self.port = self._bind()

    def start(self) -> None:
        self._server.start()
        self._arriving.start()

    def stop(self, drain_s: float) -> None:
        """Refuses new calls and answers those in progress within drain_s."""
        self._server.stop(drain_s).wait(drain_s + 1)
        self._arriving.stop()
        self._door.shutdown(wait=False)

    def reload_tls(self) -> None:
        """Reloads certificate, key and clients' authority from disk for new connections. Raises ConfigError."""
        read = self._read_certificate()
        with self._certificate_lock:
            self._new_certificate = read

    def service(self, call: Any) -> Any:
        """The method for a call; grpcio calls this before the message arrives. None if there is no such method."""
        method = self._methods.get(call.method)
        if method is None or call.method == _HEALTH or self._engine.matches(_token_of(call.invocation_metadata)):
            return method
        return self._refusal

    def _bind(self) -> int:
        address = f"{self._options.host}:{self._options.port}"
        if ":" in self._options.host and not self._options.host.startswith("["):
            address = f"[{self._options.host}]:{self._options.port}"
        try:
            if self._options.tls_cert is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, self._credentials())
        except RuntimeError as e:
            raise Unavailable(f"gRPC cannot listen on {address}: {e}; is the port taken?") from None
        if port == 0:
            raise Unavailable(f"gRPC cannot listen on {address}; is the port taken?")
        return int(port)

    def _credentials(self) -> Any:
        needs_client = self._options.tls_client_ca is not None
        return self._grpc.dynamic_ssl_server_credentials(
            self._read_certificate(), self._take_certificate, require_client_authentication=needs_client
        )

    def _take_certificate(self) -> Any:
        """grpcio calls this for every new connection; None if nothing has changed."""
        with self._certificate_lock:
            new, self._new_certificate = self._new_certificate, None
        return new

    def _read_certificate(self) -> Any:
        def read(path: Path | None) -> bytes | None:
            try:
                return None if path is None else path.read_bytes()
            except OSError as e:
                raise ConfigError(f"{path}: {e.strerror}; gRPC's TLS needs it") from None

        key, cert, ca = (read(p) for p in (self._options.tls_key, self._options.tls_cert, self._options.tls_client_ca))
        if key is None:
            raise ConfigError("TLS needs a key beside the certificate")
        return self._grpc.ssl_server_certificate_configuration([(key, cert)], ca)

    def _make_methods(self) -> dict[str, Any]:
        def answering(name: str, answer: Callable[[bytes], bytes]) -> tuple[str, Any]:
            def behave(messages: Iterator[bytes], context: Any) -> bytes:
                body = self._receive(messages, context)
                try:
                    return answer(body)
                except ElasticCTRError as e:
                    self._abort(context, e.grpc_status, str(e))

            return name, self._grpc.stream_unary_rpc_method_handler(behave)

        infer = self._grpc.stream_unary_rpc_method_handler(self._infer)
        return dict(
            [
                (f"/{_SERVICE}/ModelInfer", infer),
                answering(f"/{_SERVICE}/ServerLive", lambda _: _encode("ServerLive", {"live": True})),
                answering(f"/{_SERVICE}/ServerReady", self._server_ready),
                answering(f"/{_SERVICE}/ModelReady", self._model_ready),
                answering(f"/{_SERVICE}/ServerMetadata", self._server_metadata),
                answering(f"/{_SERVICE}/ModelMetadata", self._model_metadata),
                answering(f"/{_SERVICE}/ModelConfig", self._model_config),
                answering(f"/{_SERVICE}/ModelStatistics", self._model_statistics),
                answering(f"/{_SERVICE}/RepositoryIndex", self._repository_index),
                (_HEALTH, self._at_the_door(self._answer_health)),
            ]
        )

    def _at_the_door(self, behave: Callable[[Iterator[bytes], Any], bytes]) -> Any:
        """A method that needs no token. grpcio reads its thread pool from this attribute; a release that did not would
        use the common pool."""

        def answer(messages: Iterator[bytes], context: Any) -> bytes:
            return behave(messages, context)

        answer.experimental_thread_pool = self._door  # type: ignore[attr-defined]
        return self._grpc.stream_unary_rpc_method_handler(answer)

    def _answer_health(self, messages: Iterator[bytes], context: Any) -> bytes:
        """Waits for at most _HEALTH_WAITS messages; further checks get the state of the whole server."""
        body = b""
        if self._health_waits.acquire(blocking=False):
            try:
                body = self._receive(messages, context, _HEALTH_S)
            finally:
                self._health_waits.release()
        try:
            return self._check_health(body)
        except ElasticCTRError as e:
            self._abort(context, e.grpc_status, str(e))

    def _infer(self, messages: Iterator[bytes], context: Any) -> bytes:
        body = self._receive(messages, context)
        remaining_s = context.time_remaining()
        has_deadline = remaining_s is not None and remaining_s < _FOREVER_S
        timeout_ms = max(1, min(int(remaining_s * 1000), _MAX_TIMEOUT_MS)) if has_deadline else 0
        answer = self._engine.call("kserve_grpc", body, timeout_ms=timeout_ms, peer=context.peer())
        if answer[0] != 0:
            self._abort(context, answer[0], answer[1:].decode("utf-8", "replace"))
        return answer[1:]

    def _receive(self, messages: Iterator[bytes], context: Any, timeout_s: float | None = None) -> bytes:
        with self._arriving.watch(context, timeout_s or self._options.request_timeout_s):
            body = next(messages, None)
        if body is None:
            self._abort(context, DataError.grpc_status, "the call has no message")
        return body

    def _refuse(self, messages: Iterator[bytes], context: Any) -> bytes:
        self._abort(
            context, Unauthorized.grpc_status, "send the server's token as metadata: authorization: Bearer TOKEN"
        )

    def _abort(self, context: Any, status: int, text: str) -> NoReturn:
        context.abort(self._codes.get(status, self._codes[InternalError.grpc_status]), text[:_MAX_DETAILS])
        raise AssertionError("abort raises")

    def _server_ready(self, _: bytes) -> bytes:
        return _encode("ServerReady", {"ready": kserve.is_server_ready(self._fleet)[0]})

    def _model_ready(self, body: bytes) -> bytes:
        asked = _parse("ModelReady", body)
        return _encode("ModelReady", {"ready": kserve.is_model_ready(self._fleet, asked.name, asked.version)})

    def _server_metadata(self, _: bytes) -> bytes:
        return _encode("ServerMetadata", kserve.describe_server())

    def _model_metadata(self, body: bytes) -> bytes:
        asked = _parse("ModelMetadata", body)
        return _encode("ModelMetadata", kserve.describe_model(self._fleet, asked.name, asked.version))

    def _model_config(self, body: bytes) -> bytes:
        asked = _parse("ModelConfig", body)
        return _encode("ModelConfig", {"config": kserve.configure_model(self._fleet, asked.name, asked.version)})

    def _model_statistics(self, body: bytes) -> bytes:
        asked = _parse("ModelStatistics", body)
        if asked.name:
            kserve.is_model_ready(self._fleet, asked.name, asked.version)
        statistics = kserve.collect_statistics(self._engine.metrics(), asked.name, asked.version)
        return _encode("ModelStatistics", {"model_stats": statistics})

    def _repository_index(self, body: bytes) -> bytes:
        return _encode(
            "RepositoryIndex", {"models": kserve.list_models(self._fleet, _parse("RepositoryIndex", body).ready)}
        )

    def _check_health(self, body: bytes) -> bytes:
        """grpc.health.v1: of the whole server, of the service, or of a model by its name."""
        service = protobuf.parse("grpc.health.v1.HealthCheckRequest", body).service
        if service in ("", _SERVICE):
            is_serving, _ = kserve.is_server_ready(self._fleet)
        else:
            is_serving = kserve.is_model_ready(self._fleet, service)
        status = "SERVING" if is_serving else "NOT_SERVING"
        return protobuf.make_from_json("grpc.health.v1.HealthCheckResponse", {"status": status})


def _parse(call: str, body: bytes) -> Any:
    return protobuf.parse(f"inference.{call}Request", body)


def _encode(call: str, answer: Mapping[str, Any]) -> bytes:
    """`answer` is the protocol's JSON object."""
    return protobuf.make_from_json(f"inference.{call}Response", answer)


class _Arriving:
    """Calls whose message has not arrived yet; cancels those that take too long."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[float, Any]] = {}  # deadline, call
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="grpc-cut", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def watch(self, context: Any, timeout_s: float) -> _CallDeadline:
        return _CallDeadline(self._calls, context, time.monotonic() + timeout_s)

    def _work(self) -> None:
        while not self._stopping.wait(_CUT_EVERY_S):
            now = time.monotonic()
            late = [context for deadline, context in list(self._calls.values()) if deadline < now]
            for context in late:
                context.cancel()
            if late:
                log.info("%d gRPC calls were cancelled: their message did not arrive in time", len(late))


class _CallDeadline:
    def __init__(self, calls: dict[int, tuple[float, Any]], context: Any, deadline: float) -> None:
        self._calls, self._entry = calls, (deadline, context)

    def __enter__(self) -> None:
        self._calls[id(self)] = self._entry

    def __exit__(self, *_: object) -> None:
        del self._calls[id(self)]


def _token_of(metadata: Any) -> str:
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str) and value[:7].lower() == "bearer ":
            return value[7:].strip()
    return ""


def _import_grpc() -> Any:
    try:
        import grpc
    except ImportError:
        raise ConfigError(
            "gRPC needs the package grpcio; install it with: pip install grpcio, or switch gRPC off with "
            "--grpc-port -1 (grpc_port: null)"
        ) from None
    return grpc
