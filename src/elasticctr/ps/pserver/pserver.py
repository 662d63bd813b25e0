"""A pserver: one shard of a job's tables and dense vector behind the wire (docs/formats/ps-wire.md), thin over the
native one.

`run` is what `elasticctr pserver` does. With a coordinator it joins, loads what it is ordered to, reports each second,
and ends when told; by itself it serves until SIGTERM. Imports no torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elasticctr import _native
from elasticctr.config.tls import wants_clients
from elasticctr.errors import ConfigError, DeadlineExceeded, NotFound, Unavailable
from elasticctr.net.access import check_listener
from elasticctr.net.certificates import watched
from elasticctr.ps.addresses import advertised_host, make_local_socket
from elasticctr.ps.coordinator_client import CoordinatorClient, patiently
from elasticctr.ps.identity import build, job_identity
from elasticctr.ps.pserver.memory import MemoryWatch
from elasticctr.ps.shape import JobShape, shape_of
from elasticctr.table.table import to_native
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.job import DenseSettings, Job

DRAIN_S = 5.0
BEAT_S = 1.0
STANDBY_TIMEOUT_MS = 5_000
STANDBY_MAX_BYTES = 512 << 20
_POLL_S = 0.05
_PORTS_TRIED = 3
_ADAGRAD_EPSILON = 1e-10
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class PServerOptions:
    """What a pserver is started with."""

    job: Job
    shard: int | None = None  # None: the coordinator says
    shards: int | None = None  # None: cluster.pservers
    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    unix: Path | None = None
    name: str | None = None
    coordinator: str | None = None  # URL, or the run directory that says it; None: there is none
    is_standby: bool = False
    token: str = ""
    insecure: bool = False  # without a token, may be reached from other machines
    threads: int = 2  # event loops
    step_threads: int = 1  # that one push is spread over
    load: Path | None = None  # without a coordinator: the checkpoint to begin with
    max_buffered_mib: int = 2048

    @property
    def cluster(self) -> ClusterSettings:
        return self.job.cluster or ClusterSettings()


@dataclass(frozen=True)
class PServerAddress:
    """Where a started pserver can be reached."""

    name: str
    address: str
    shard: int
    shards: int
    role: str
    pid: int
    is_ready: bool


class PServer:
    """A pserver in this process. Use as a context manager, or call `start` and `stop`."""

    def __init__(self, options: PServerOptions, shape: JobShape, shard: int, shards: int, port: int) -> None:
        self.options = options
        self.shard, self.shards = shard, shards
        identity = job_identity(options.job)
        cluster = options.cluster
        self._native = _native.PServer(
            shard=shard,
            shards=shards,
            tables=[to_native(table) for table in shape.tables],
            dense_floats=shape.dense_floats,
            dense_on_first=options.job.dense.clip_norm is not None,
            dense_optimizer=to_native_dense(options.job.dense),
            host=options.host,
            port=port,
            unix_path="" if options.unix is None else str(options.unix),
            token=options.token,
            job=identity.number,
            identity=identity.text,
            digest=identity.digest,
            build=build(),
            strategy=cluster.strategy,
            is_standby=options.is_standby,
            threads=options.threads,
            # The coordinator takes a silent trainer out of the group after its lease; only then is a group late.
            group_timeout_ms=round(1000 * max(60.0, 3 * cluster.lease_s)),
            max_buffered_bytes=options.max_buffered_mib << 20,
            request_timeout_s=30,
            scratch=_scratch(options.job),
            files=str(Path(options.job.run_dir).absolute()),
            standby_timeout_ms=STANDBY_TIMEOUT_MS,
            standby_max_bytes=STANDBY_MAX_BYTES,
            # A standby that was given up must not take over: the coordinator hears of it before anybody's push counts.
            confirms_drops=options.coordinator is None,
            **({} if cluster.tls is None else {**cluster.tls.server_files(), **cluster.tls.client_files()}),
        )

    def start(self) -> None:
        self._native.start()

    def reload_tls(self) -> None:
        """Reads certificate, key and clients' authority again, for connections made from now on."""
        tls = self.options.cluster.tls
        assert tls is not None
        files = tls.server_files()
        self._native.set_tls(files["tls_cert"], files["tls_key"], files["tls_client_ca"])

    def stop(self, drain_s: float = DRAIN_S) -> None:
        self._native.stop(drain_s)

    def load(self, directory: Path | None, era: int = 0) -> None:
        """Takes this shard's part of a checkpoint, or nothing; then it is ready, and refuses work of earlier eras."""
        self._native.load("" if directory is None else str(directory), era)

    @property
    def address(self) -> str:
        return f"{advertised_host(self.options.host)}:{self._native.port}"

    @property
    def is_ready(self) -> bool:
        return self._native.is_ready

    @property
    def is_stop_asked(self) -> bool:
        return self._native.is_stop_asked

    @property
    def is_dropping(self) -> bool:
        """The standby is given up, and pushes are held until `confirm_drop`."""
        return self._native.is_dropping

    def confirm_drop(self) -> None:
        self._native.confirm_drop()

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = json.loads(self._native.stats())
        return stats

    @property
    def listening(self) -> PServerAddress:
        role = "primary" if self._native.is_primary else "standby"
        name = self.options.name or f"pserver-{self.shard}"
        return PServerAddress(name, self.address, self.shard, self.shards, role, os.getpid(), self.is_ready)

    def __enter__(self) -> PServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def to_native_dense(settings: DenseSettings) -> _native.DenseOptimizerSettings:
    return _native.DenseOptimizerSettings(
        kind=getattr(_native.DenseOptimizerKind, settings.optimizer),
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        clip_norm=settings.clip_norm or 0.0,
        epsilon=_ADAGRAD_EPSILON if settings.optimizer == "adagrad" else 1e-8,
    )


class Rates:
    """The stats a beat carries: counters of the pserver, and how fast they grow."""

    def __init__(self) -> None:
        self._at_s = time.monotonic()
        self._before: dict[str, Any] = {}

    def update(self, stats: dict[str, Any]) -> dict[str, Any]:
        now_s = time.monotonic()
        seconds = max(now_s - self._at_s, 1e-3)
        rates = {
            f"{name}_per_s": round((stats[name] - self._before.get(name, stats[name])) / seconds, 1)
            for name in ("pulls", "pushes", "pulled_rows", "pushed_rows")
        }
        self._at_s, self._before = now_s, stats
        return {**stats, **rates, "memory_bytes": _resident_bytes()}


class PServerMembership:
    """This pserver's place with the coordinator: joined once, kept by beats."""

    def __init__(self, options: PServerOptions, client: CoordinatorClient) -> None:
        self._options = options
        self._client = client
        self._member = 0

    def join(self, address: str | None, is_over: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        options = self._options
        identity = job_identity(options.job)
        answer = patiently(
            lambda: self._client.join(
                "standby" if options.is_standby else "pserver",
                options.name or f"pserver-{options.shard if options.shard is not None else os.getpid()}",
                build=build(),
                identity=identity.text,
                host=socket.gethostname(),
                pid=os.getpid(),
                address=address,
                shard=options.shard,
            ),
            options.cluster.coordinator_wait_s,
            is_over,
        )
        self._member = int(answer.get("id") or 0)
        return answer

    def beat(self, stats: dict[str, Any]) -> str:
        """The coordinator's order. NotFound: it does not know this pserver, which has to join again."""
        return str(self._client.beat(self._member, stats).get("order", "go"))

    def report(self, what: str, detail: str) -> None:
        self._client.report(self._member, what, detail)

    def leave(self, reason: str) -> None:
        with contextlib.suppress(Unavailable, DeadlineExceeded, NotFound):
            self._client.leave(self._member, reason)


def run(options: PServerOptions, announce: Callable[[PServerAddress], None]) -> None:
    """Serves until SIGTERM, SIGINT or the coordinator's word. `announce` is called once it can be asked."""
    check_listener(
        "pserver",
        options.host,
        has_token=bool(options.token),
        has_client_ca=wants_clients(options.cluster.tls),
        insecure=options.insecure,
    )
    stopped = threading.Event()
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda *_: stopped.set())
    _native.set_threads(options.step_threads)
    _native.keep_freed_memory()
    shape = shape_of(options.job)
    if options.coordinator is None:
        _run_alone(options, shape, announce, stopped)
    else:
        _run_joined(options, shape, announce, stopped)


def _run_alone(
    options: PServerOptions, shape: JobShape, announce: Callable[[PServerAddress], None], stopped: threading.Event
) -> None:
    if options.shard is None:
        raise ConfigError("which of the pservers is this? Give --shard, or --coordinator, which says it")
    server = PServer(options, shape, options.shard, options.shards or options.cluster.pservers, options.port)
    with server, watched(options.cluster.tls, [server.reload_tls]):
        server.load(options.load)
        announce(server.listening)
        while not stopped.wait(0.2) and not server.is_stop_asked:
            pass


def _run_joined(
    options: PServerOptions, shape: JobShape, announce: Callable[[PServerAddress], None], stopped: threading.Event
) -> None:
    assert options.coordinator is not None
    client = CoordinatorClient(options.coordinator, options.token, tls=options.cluster.tls)
    membership = PServerMembership(options, client)
    shards = options.shards or options.cluster.pservers
    if options.shard is None:
        port = options.port or _find_port(options.host)
        answer = membership.join(f"{advertised_host(options.host)}:{port}", stopped.is_set)
        server = _start(options, shape, int(answer["shard"]), int(answer["shards"]), port)
    else:
        server = _start(options, shape, options.shard, shards, options.port)
        answer = membership.join(server.address, stopped.is_set)
    try:
        if answer.get("order") == "stop":
            return
        if answer.get("shards", server.shards) != server.shards:
            raise ConfigError(f"the coordinator counts {answer['shards']} pservers, this one {server.shards}")
        if not answer.get("hold") and not options.is_standby:
            server.load(Path(answer["load"]) if answer.get("load") else None, client.era)
        announce(server.listening)
        with watched(options.cluster.tls, [server.reload_tls]):
            _beat_until_over(options, server, membership, stopped)
    finally:
        server.stop()
        client.close()


def _start(options: PServerOptions, shape: JobShape, shard: int, shards: int, port: int) -> PServer:
    """A pserver that listens on a Unix socket beside its port, if it can: trainers of this machine look for it."""
    number = job_identity(options.job).number
    for _ in range(_PORTS_TRIED):
        chosen = port or _find_port(options.host)
        unix = options.unix or make_local_socket(chosen, number)
        if unix is None:
            break
        server = PServer(replace(options, unix=unix), shape, shard, shards, chosen)
        with contextlib.suppress(Unavailable):  # somebody has taken the port, or left a socket at that place
            server.start()
            return server
    server = PServer(options, shape, shard, shards, port)
    server.start()
    return server


def _beat_until_over(
    options: PServerOptions, server: PServer, membership: PServerMembership, stopped: threading.Event
) -> None:
    rates = Rates()
    heard_s = time.monotonic()
    memory = MemoryWatch(options.cluster.pserver_memory_mib)
    is_shortage_told = False
    while not _rest(server, stopped, memory, is_shortage_told):
        if server.is_stop_asked:
            return
        try:
            stats = rates.update(server.stats())
            order = membership.beat(stats)
            if not is_shortage_told and (shortage := memory.look()) is not None:
                membership.report("memory", f"shard {server.shard} has {stats['rows']:,} rows, and {shortage}")
                is_shortage_told = True
            heard_s = time.monotonic()
            if stats["standby"] == "dropping":
                server.confirm_drop()
        except NotFound:
            order = str(membership.join(server.address, stopped.is_set).get("order", "go"))
        except (Unavailable, DeadlineExceeded) as e:
            if time.monotonic() - heard_s > options.cluster.coordinator_wait_s:
                raise Unavailable(f"no coordinator for {options.cluster.coordinator_wait_s:g} s: {e}") from e
            continue
        if order == "stop":
            return
        if order == "rejoin":
            # What it holds is useless now. Its engine starts it again, and it follows the pserver that serves.
            raise Unavailable(f"another process serves shard {server.shard} now; started again, this one follows it")
    membership.leave("told to stop")


def _rest(server: PServer, stopped: threading.Event, memory: MemoryWatch, is_shortage_told: bool) -> bool:
    """Waits for the next beat, which comes sooner where pushes wait for it or memory runs out. True: it is over."""
    until_s = time.monotonic() + BEAT_S
    while time.monotonic() < until_s and not server.is_dropping and not server.is_stop_asked:
        if stopped.wait(_POLL_S):
            return True
        if not is_shortage_told and memory.look() is not None:
            break
    return stopped.is_set()


def _scratch(job: Job) -> str:
    """Where copies of the state for a standby stand for a moment."""
    path = Path(job.run_dir) / "cluster" / "scratch"
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


def _find_port(host: str) -> int:
    """A port that is free now: the coordinator must know it before the pserver can listen."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as f:  # noqa: PTH123
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
