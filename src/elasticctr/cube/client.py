"""Looks up rows on cube servers, from threads (`CubeClient`) or from asyncio (`AsyncCubeClient`).

    with CubeClient("cube.yaml") as client:
        lookup = client.get("ctr/embedding", feasigns)

A thin layer over `native/cube/client`, which chooses servers, retries, keeps to one version and caches. A forked child
opens its own connections.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elasticctr import _native
from elasticctr.cube.lookup import Lookup
from elasticctr.cube.settings import CubeSettings, OnFailure, load_conf
from elasticctr.errors import ConfigError, DataError, FailedPrecondition, NotFound

T = TypeVar("T")
Config = str | Path | CubeSettings | Sequence[CubeSettings]
DEFAULT_THREADS = 32


class _Cluster:
    """The native client of one group of servers, and the tables they hold."""

    def __init__(self, settings: CubeSettings, token: str | None, on_failure: OnFailure | None) -> None:
        self.settings = settings
        self.degrade = (on_failure or settings.on_failure) == "degrade"
        self.tables = {_full_name(table, settings.model) for table in settings.tables}
        self.native = _native.CubeClient(
            shards=[list(replicas) for replicas in settings.shards],
            sharding=settings.sharding,
            token=settings.token() if token is None else token,
            timeout_ms=settings.timeout_ms,
            connect_ms=settings.connect_ms,
            retries=settings.retries,
            backup_ms=settings.backup_ms,
            load_balancer=settings.load_balancer,
            eject_after=settings.eject_after,
            eject_ms=settings.eject_ms,
            eject_max_ms=settings.eject_max_ms,
            idle_connections=settings.idle_connections,
            cache_bytes=settings.cache_bytes,
            refresh_ms=settings.refresh_ms,
            **({} if settings.tls is None else settings.tls.client_files()),
        )

    def full_name(self, table: str) -> str | None:
        """`model/table` if these servers hold it."""
        name = table if "/" in table or self.settings.model is None else f"{self.settings.model}/{table}"
        return name if not self.tables or name in self.tables else None


class CubeClient:
    """Thread-safe; share one. Every error is one of `elasticctr.errors`: NotFound (no such table, or the version
    is gone), Unavailable, DeadlineExceeded, Corruption, FailedPrecondition (shards in the wrong order),
    Unauthorized."""

    def __init__(
        self, config: Config, token: str | None = None, *, model: str | None = None, on_failure: OnFailure | None = None
    ) -> None:
        """`config` is a file (cube.yaml or cube.conf) or settings; `token` and `on_failure` override it."""
        if isinstance(config, (str, Path)):
            config = load_conf(config, model)
        elif isinstance(config, CubeSettings):
            config = (config,)
        self._clusters: list[_Cluster] | None = [_Cluster(settings, token, on_failure) for settings in config]

    def connect(self, timeout_s: float = 1.0) -> list[str]:
        """Asks the servers for their tables, checks them against the settings, and returns their names. Optional: the
        first lookup does it for its own table."""
        for cluster in self._open():
            cluster.native.connect(_milliseconds(timeout_s))
        return sorted({table for cluster in self._open() for table in cluster.native.tables()})

    def identities(self, model: str, version: int) -> set[str]:
        """The identities that servers last reported for a version's number; empty if none, or if unknown."""
        return {one for cluster in self._open() for one in cluster.native.identities(model, version)}

    def get(
        self, table: str, feasigns: ArrayLike, version: int | None = None, timeout_s: float | None = None
    ) -> Lookup:
        """The rows of `feasigns`, in their order, all of one version: the active one, or exactly `version`."""
        cluster, name = self._find(table)
        answer = cluster.native.get(
            [name], [as_feasigns(feasigns)], _version(version), _milliseconds(timeout_s), cluster.degrade
        )
        (rows, found), *_ = answer[0]
        return Lookup(rows, found, answer[1], answer[2])

    def get_many(
        self, feasigns: Mapping[str, ArrayLike], version: int | None = None, timeout_s: float | None = None
    ) -> dict[str, Lookup]:
        """Rows of several tables of one model, all of one version. Keys are the names as given."""
        if not feasigns:
            return {}
        found = [self._find(table) for table in feasigns]
        cluster = found[0][0]
        if any(other is not cluster for other, _ in found):
            raise FailedPrecondition(f"{', '.join(feasigns)} are on different servers; look them up separately")
        names, keys = [name for _, name in found], [as_feasigns(values) for values in feasigns.values()]
        parts, answered, degraded = cluster.native.get(
            names, keys, _version(version), _milliseconds(timeout_s), cluster.degrade
        )
        lookups = [Lookup(rows, is_found, answered, degraded) for rows, is_found in parts]
        return dict(zip(feasigns, lookups, strict=True))

    def start_load(
        self,
        table: str,
        feasigns: ArrayLike,
        *,
        batch: int,
        threads: int,
        seconds: float,
        rate: float = 0.0,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> _native.CubeLoad:
        """Starts lookups to measure, in native threads: `rate` per second (0: unlimited) for `seconds`."""
        cluster, name = self._find(table)
        return _native.CubeLoad(
            cluster.native,
            name,
            as_feasigns(feasigns),
            batch=batch,
            threads=threads,
            seconds=seconds,
            rate=rate,
            version=_version(version),
            timeout_ms=_milliseconds(timeout_s),
            degrade=cluster.degrade,
        )

    def stats(self) -> dict[str, Any]:
        """Counters since the client was made: calls, keys, misses, retries, backups, ejections, cache, errors by kind,
        and the state of each replica."""
        total: dict[str, Any] = {}
        for cluster in self._open():
            for key, value in cluster.native.stats().items():
                if isinstance(value, dict):
                    sums = total.setdefault(key, {})
                    sums.update({name: sums.get(name, 0) + count for name, count in value.items()})
                else:
                    total[key] = total[key] + value if key in total else value
        return total

    def close(self) -> None:
        """Closes all connections. Lookups in other threads still finish."""
        self._clusters = None

    def native_of(self, table: str) -> _native.CubeClient:
        """The native client of the servers that hold `table`. With a single model the name needs no model."""
        return self._find(table)[0].native

    def __enter__(self) -> CubeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> list[_Cluster]:
        if self._clusters is None:
            raise FailedPrecondition("this cube client is closed")
        return self._clusters

    def _find(self, table: str) -> tuple[_Cluster, str]:
        for cluster in self._open():
            name = cluster.full_name(table)
            if name is not None:
                if "/" not in name:
                    raise ConfigError(f"table {table!r}: its name lacks the model; ask for model/table or set 'model'")
                return cluster, name
        known = sorted(table for cluster in self._open() for table in cluster.tables)
        raise NotFound(f"the settings have no servers for table {table!r}, only for {', '.join(known)}")


class AsyncCubeClient:
    """`CubeClient` for asyncio: lookups run in its own threads and never block the event loop."""

    def __init__(
        self,
        config: Config,
        token: str | None = None,
        *,
        model: str | None = None,
        on_failure: OnFailure | None = None,
        threads: int = DEFAULT_THREADS,
    ) -> None:
        self._client = CubeClient(config, token, model=model, on_failure=on_failure)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="cube")

    async def connect(self, timeout_s: float = 1.0) -> list[str]:
        return await self._run(partial(self._client.connect, timeout_s))

    async def get(
        self, table: str, feasigns: ArrayLike, version: int | None = None, timeout_s: float | None = None
    ) -> Lookup:
        return await self._run(partial(self._client.get, table, feasigns, version, timeout_s))

    async def get_many(
        self, feasigns: Mapping[str, ArrayLike], version: int | None = None, timeout_s: float | None = None
    ) -> dict[str, Lookup]:
        return await self._run(partial(self._client.get_many, feasigns, version, timeout_s))

    def stats(self) -> dict[str, Any]:
        return self._client.stats()

    async def close(self) -> None:
        """Waits for running lookups, at most until their deadline."""
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self._client.close()

    async def __aenter__(self) -> AsyncCubeClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def as_feasigns(values: ArrayLike) -> NDArray[np.uint64]:
    """A one-dimensional uint64 array. Signed integers keep their bits: many tools store feasigns over 2⁶³ that way."""
    try:
        array = np.asarray(values, dtype=None if isinstance(values, np.ndarray) else np.uint64)
    except (OverflowError, TypeError, ValueError) as e:
        raise DataError(f"feasigns must be whole numbers from 0 to 2⁶⁴ - 1: {e}") from None
    if array.dtype == np.int64:
        array = array.view(np.uint64)
    elif array.dtype != np.uint64:
        if array.dtype.kind not in "ui":
            raise DataError(f"feasigns must be 64-bit integers, not {array.dtype}")
        array = array.astype(np.uint64)
    if array.ndim != 1:
        raise DataError(f"feasigns must have one dimension, not {array.ndim}")
    return np.ascontiguousarray(array)


def _full_name(table: str, model: str | None) -> str:
    return table if "/" in table or model is None else f"{model}/{table}"


def _version(version: int | None) -> int:
    if version is None:
        return 0
    if version < 1:
        raise ConfigError(f"version {version} does not exist; versions are numbered from 1")
    return version


def _milliseconds(timeout_s: float | None) -> int:
    if timeout_s is None:
        return 0
    if not timeout_s > 0:
        raise ConfigError(f"timeout_s must be above 0, not {timeout_s}")
    return min(math.ceil(timeout_s * 1000), 3_600_000)
