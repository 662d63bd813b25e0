"""The prediction server, a thin layer over the native one: options in, a running server out. Imports neither torch nor
NumPy.

    with PredictServer(PredictServerOptions(port=8500)) as server:
        fleet = ModelFleet(settings, server.set_models, server.set_ready)
        server.use(Control(fleet))

Predictions never come here. Two threads take all other requests from the native queue and pass them to Control.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from elasticctr import _native
from elasticctr.errors import ConfigError, ElasticCTRError, Unavailable
from elasticctr.net.access import NO_TOKENS, Tokens, check_listener
from elasticctr.serve.control import Control, ControlResponse, error_response
from elasticctr.serve.feedback.settings import RequestLogSettings
from elasticctr.serve.settings import LimitSettings

log = logging.getLogger(__name__)

DRAIN_S = 5.0
_CONTROL_THREADS = 2
_POLL_S = 0.5

# Name, weight, whether it is a shadow, version.
NativeVariant: TypeAlias = "tuple[str, float, bool, _native.ServedVersion]"
# Name, sticky field, its seed, whether it answers Paddle Serving calls that name no model, variants.
NativeModel: TypeAlias = "tuple[str, str, int, bool, list[NativeVariant]]"


@dataclass(frozen=True)
class PredictServerOptions:
    """Options of a server. Port 0 means any free port."""

    host: str = "127.0.0.1"
    port: int = 8500
    unix: Path | None = None
    loops: int = 1
    workers: int = 0  # 0: one per core
    tokens: Tokens = NO_TOKENS
    insecure: bool = False  # may be reachable from other machines without a token
    limits: LimitSettings = field(default_factory=LimitSettings)
    access_log: Path | None = None  # `-`: stderr
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    request_log: RequestLogSettings | None = None


class PredictServer:
    """A server in this process. Use as a context manager, or call `start` and `stop`."""

    def __init__(self, options: PredictServerOptions) -> None:
        if (options.tls_cert is None) != (options.tls_key is None) or (options.tls_client_ca and not options.tls_cert):
            raise ConfigError("TLS needs a certificate and its key")
        check_listener(
            "serve",
            options.host,
            has_token=bool(options.tokens),
            has_client_ca=options.tls_client_ca is not None,
            insecure=options.insecure,
        )
        self.options = options
        self._control: Control | None = None
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        request_log = options.request_log
        self.native = _native.PredictServer(
            host=options.host,
            ports=[options.port],
            unix_path=_text(options.unix),
            loops=options.loops,
            workers=options.workers,
            token=options.tokens.admin or "",
            read_token=options.tokens.read or "",
            access_log=_text(options.access_log),
            tls_cert=_text(options.tls_cert),
            tls_key=_text(options.tls_key),
            tls_client_ca=_text(options.tls_client_ca),
            request_log=_native.RequestLogOptions(**(request_log.native() if request_log else {})),
            **options.limits.native(),
        )

    @property
    def port(self) -> int:
        return self.native.ports[0]

    def use(self, control: Control) -> None:
        """Answers requests other than predictions from now on; before, they get 503."""
        self._control = control

    def set_models(self, models: Sequence[NativeModel]) -> None:
        """Sets what is served from now on; swapped between two requests."""
        self.native.set_models(list(models))

    def set_ready(self, is_ready: bool, why: str = "") -> None:
        self.native.set_ready(is_ready, why)

    def reload_tls(self) -> None:
        """Reloads certificate, key and clients' authority from disk for new connections. Raises ConfigError."""
        options = self.options
        self.native.set_tls(_text(options.tls_cert), _text(options.tls_key), _text(options.tls_client_ca))

    def metrics(self) -> str:
        return self.native.metrics()

    def start(self) -> None:
        self.native.start()
        for i in range(_CONTROL_THREADS):
            thread = threading.Thread(target=self._work, name=f"serve-control-{i}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Answers what has arrived, within drain_s, and ends."""
        self.native.stop(drain_s)
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> PredictServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop(DRAIN_S if error is None else 0)

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._push_metrics()
            asked = self.native.next_control(_POLL_S)
            if asked is None:
                continue
            number, method, path, query, _, body = asked
            response = self._answer(method.decode(), path, query, body)
            headers = "".join(f"{name}: {value}\r\n" for name, value in response.headers)
            self.native.answer_control(number, response.status, response.content_type, response.body, headers)

    def _answer(self, method: str, path: bytes, query: bytes, body: bytes) -> ControlResponse:
        if self._control is None:
            return error_response(Unavailable("the server is starting"))
        return self._control.handle(method, path.decode("latin-1"), query.decode("latin-1"), body)

    def _push_metrics(self) -> None:
        if self._control is None:
            return
        try:
            self.native.set_extra_metrics(self._control.fleet.metrics())
        except ElasticCTRError as e:
            log.warning("metrics: %s", e)


def _text(path: Path | None) -> str:
    return "" if path is None else str(path)
