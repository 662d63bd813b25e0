"""The cube server, a thin layer over the native one: options in, a running server out. Imports neither torch nor NumPy.

`run` is what `elasticctr cube server` does: serve until SIGTERM or SIGINT, then finish what arrived and return.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from elasticctr import _native
from elasticctr.errors import ConfigError
from elasticctr.net.access import NO_TOKENS, Tokens, check_listener
from elasticctr.obs.signals import Signals

if TYPE_CHECKING:
    from elasticctr.config.tls import TlsSettings

DRAIN_S = 5.0
_POLL_S = 0.5
_WAIT_S = 3600.0
# Options that the native server has by the same name.
_NATIVE = (
    "host",
    "in_memory",
    "threads",
    "activate_newest",
    "max_connections",
    "max_connections_per_address",
    "request_timeout_s",
    "busy_poll_us",
)


@dataclass(frozen=True)
class CubeServerOptions:
    """Options of a server. Port 0 means any free port; every port speaks every protocol."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8000
    extra_ports: tuple[int, ...] = ()
    unix: Path | None = None
    in_memory: bool = True
    check: Literal["all", "header"] = "all"
    threads: int = 1
    tokens: Tokens = NO_TOKENS
    insecure: bool = False  # may be reachable from other machines without a token
    shard: tuple[int, int] | None = None
    activate_newest: bool = False
    max_connections: int = 20_000
    max_connections_per_address: int = 0  # 0: a quarter of them
    max_buffered_mib: int = 1024
    request_timeout_s: int = 15
    busy_poll_us: int = 0
    tls: TlsSettings | None = None


@dataclass(frozen=True)
class CubeServerAddress:
    """Where a started server can be reached, and whether it is ready."""

    host: str
    port: int
    extra_ports: tuple[int, ...]
    unix: str | None
    pid: int
    ready: bool
    reason: str | None  # why not


class CubeServer:
    """A server in this process. Use as a context manager, or call `start` and `stop`."""

    def __init__(self, options: CubeServerOptions) -> None:
        check_listener(
            "cube server",
            options.host,
            has_token=bool(options.tokens),
            has_client_ca=options.tls is not None and options.tls.client_ca is not None,
            insecure=options.insecure,
        )
        self.options = options
        shard, shards = options.shard or (0, 0)
        self._native = _native.CubeServer(
            data=str(options.data),
            ports=[options.port, *options.extra_ports],
            unix_path="" if options.unix is None else str(options.unix),
            check_all=options.check == "all",
            token=options.tokens.admin or "",
            read_token=options.tokens.read or "",
            shard=shard,
            shards=shards,
            max_buffered_bytes=options.max_buffered_mib << 20,
            **{name: getattr(options, name) for name in _NATIVE},
            **({} if options.tls is None else options.tls.server_files()),
        )

    def start(self) -> None:
        self._native.start()

    def wait_started(self, timeout_s: float) -> bool:
        """False while the versions in the LIVE files are still being loaded."""
        return self._native.wait_started(timeout_s)

    def reload_tls(self) -> None:
        """Reloads certificate, key and the clients' authority for new connections."""
        assert self.options.tls is not None
        files = self.options.tls.server_files()
        self._native.set_tls(files["tls_cert"], files["tls_key"], files["tls_client_ca"])

    def stop(self, drain_s: float = DRAIN_S) -> None:
        self._native.stop(drain_s)

    @property
    def port(self) -> int:
        return self._native.ports[0]

    @property
    def listening(self) -> CubeServerAddress:
        ports = self._native.ports
        unix = None if self.options.unix is None else str(self.options.unix)
        reason = None if self._native.is_ready else self._reason()
        return CubeServerAddress(
            self.options.host, ports[0], tuple(ports[1:]), unix, os.getpid(), self._native.is_ready, reason
        )

    def _reason(self) -> str:
        models = json.loads(self._native.status())["models"]
        broken = [f"{model['name']}: {model['error']}" for model in models if "error" in model]
        if broken:
            return "; ".join(broken)
        if self.options.activate_newest:
            return f"no complete version in {self.options.data}"
        return "no version has been activated here; POST /v1/activate, or start with --activate newest"

    def __enter__(self) -> CubeServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def parse_shard(text: str) -> tuple[int, int]:
    """`0/2` as (0, 2)."""
    shard, slash, shards = text.partition("/")
    if not slash or not shard.isdecimal() or not shards.isdecimal() or not int(shard) < int(shards) <= 4096:
        raise ConfigError(f"--shard {text!r} is not of the form 0/2: this shard, from 0, and the number of shards")
    return int(shard), int(shards)


def run(options: CubeServerOptions, announce: Callable[[CubeServerAddress], None], drain_s: float = DRAIN_S) -> None:
    """Serves until SIGTERM or SIGINT. Calls `announce` once every version in LIVE was loaded or has failed to load."""
    with Signals(signal.SIGTERM, signal.SIGINT) as signals:
        server = CubeServer(options)
        server.start()
        is_stopped = False
        while not server.wait_started(_POLL_S) and not is_stopped:
            is_stopped = signals.wait(0) is not None
        announce(server.listening)
        with _watch(server):
            while not is_stopped:
                is_stopped = signals.wait(_WAIT_S) is not None
        server.stop(drain_s)


def _watch(server: CubeServer) -> AbstractContextManager[None]:
    if server.options.tls is None:
        return nullcontext()
    from elasticctr.net.certificates import watched

    return watched(server.options.tls, [server.reload_tls])
