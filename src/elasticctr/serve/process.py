"""A running prediction server: sockets, models and API, from start to SIGTERM.

`run` implements `elasticctr serve`. On SIGTERM or SIGINT it reports not ready but keeps answering for `drain_s`, so
that clients can move to another server; then it finishes what has arrived. SIGHUP makes every model check its
repository now, and reloads certificates.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from elasticctr.config.tls import served
from elasticctr.errors import ConfigError
from elasticctr.net.access import Tokens, load_tokens
from elasticctr.net.certificates import LOOK_S, Certificate
from elasticctr.obs import console
from elasticctr.obs.signals import Signals
from elasticctr.serve.activation.fleet import ModelFleet
from elasticctr.serve.activation.served_version import find_library
from elasticctr.serve.control import Control
from elasticctr.serve.kserve.grpc_server import GrpcOptions, GrpcServer
from elasticctr.serve.kserve.pages import KServePages
from elasticctr.serve.server import PredictServer, PredictServerOptions
from elasticctr.serve.settings import ServeSettings

_STOP = (signal.SIGTERM, signal.SIGINT)
_FINISH_S = 5.0


@dataclass(frozen=True, slots=True)
class PredictServerAddress:
    """Where a started server can be reached."""

    http: str
    grpc: str | None
    host: str
    port: int
    grpc_port: int | None
    models: tuple[str, ...]
    pid: int


def run(settings: ServeSettings, announce: Callable[[PredictServerAddress], None]) -> None:
    """Serves until SIGTERM or SIGINT. Calls `announce` once it listens; versions are loaded from then on."""
    with Signals(*_STOP, signal.SIGHUP) as signals:
        _run(settings, announce, signals)


def _run(settings: ServeSettings, announce: Callable[[PredictServerAddress], None], signals: Signals) -> None:
    find_library()  # without it no version can answer
    tokens = load_tokens(settings.token_file, settings.read_token_file)
    server = PredictServer(_options(settings, tokens))
    fleet = ModelFleet(settings, server.set_models, server.set_ready)
    server.use(Control(fleet, [KServePages(fleet, server.metrics)]))
    server.start()
    try:
        grpc = _start_grpc(settings, server, fleet)
        fleet.start()
        announce(_listening(settings, server, grpc))
    except BaseException:
        server.stop(0.0)
        raise
    _wait_for_stop(signals, fleet, _certificate(settings, server, grpc))
    fleet.drain()
    console.note(f"shutting down: still answering for {settings.drain_s:g} s")
    _sleep_unless_told_again(signals, settings.drain_s)
    if grpc is not None:
        grpc.stop(_FINISH_S)
    server.stop(_FINISH_S)


def _certificate(settings: ServeSettings, server: PredictServer, grpc: GrpcServer | None) -> Certificate | None:
    tls = served(settings.tls)
    if tls is None:
        return None
    return Certificate(tls, [server.reload_tls, *([] if grpc is None else [grpc.reload_tls])])


def _wait_for_stop(signals: Signals, fleet: ModelFleet, certificate: Certificate | None) -> None:
    while (came := signals.wait(LOOK_S)) not in _STOP:
        if came is not None:
            fleet.look()
        if certificate is not None:
            certificate.look(now=came is not None)


def _listening(settings: ServeSettings, server: PredictServer, grpc: GrpcServer | None) -> PredictServerAddress:
    scheme = "http" if served(settings.tls) is None else "https"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return PredictServerAddress(
        f"{scheme}://{host}:{server.port}",
        None if grpc is None else f"{host}:{grpc.port}",
        settings.host,
        server.port,
        None if grpc is None else grpc.port,
        tuple(model.name for model in settings.models),
        os.getpid(),
    )


def _sleep_unless_told_again(signals: Signals, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left_s := deadline - time.monotonic()) > 0:
        if signals.wait(left_s) in _STOP:
            return


def _start_grpc(settings: ServeSettings, server: PredictServer, fleet: ModelFleet) -> GrpcServer | None:
    if settings.grpc_port in (None, -1):
        return None
    tls = served(settings.tls)
    options = GrpcOptions(
        host=settings.host,
        port=settings.grpc_port,
        tls_cert=None if tls is None else tls.cert,
        tls_key=None if tls is None else tls.key,
        tls_client_ca=None if tls is None else tls.client_ca,
        body_mib=settings.limits.body_mib,
        request_timeout_s=settings.limits.request_timeout_s,
    )
    try:
        grpc = GrpcServer(options, server.native, fleet)
    except ConfigError as e:
        # gRPC is required only if it was requested explicitly.
        if "grpc_port" in settings.model_fields_set:
            raise
        console.warn(f"no gRPC: {e}")
        return None
    grpc.start()
    return grpc


def _options(settings: ServeSettings, tokens: Tokens) -> PredictServerOptions:
    tls = served(settings.tls)
    return PredictServerOptions(
        host=settings.host,
        port=settings.port,
        loops=settings.loops,
        workers=settings.threads,
        tokens=tokens,
        insecure=settings.insecure,
        limits=settings.limits,
        access_log=settings.access_log,
        tls_cert=None if tls is None else tls.cert,
        tls_key=None if tls is None else tls.key,
        tls_client_ca=None if tls is None else tls.client_ca,
        request_log=settings.request_log,
    )
