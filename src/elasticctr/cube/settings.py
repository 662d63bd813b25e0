"""A client's cube servers and how it talks to them: our `cube.yaml`, or Paddle's `cube.conf`.

cube.conf is read here and not in `compat` because programs that embed a client pass it to the client directly. Every
mistake is a ConfigError that names file and key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from elasticctr.config import Settings, apply_overrides, load_yaml, parse_settings, read_settings_file
from elasticctr.config.tls import TlsSettings, anchor
from elasticctr.errors import ConfigError
from elasticctr.net.access import read_token
from elasticctr.obs import console

OnFailure = Literal["error", "degrade"]
LoadBalancer = Literal["round_robin", "least_loaded", "random"]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")

# brpc's names. Its weighted and hashing balancers make no difference here: a shard's replicas hold the same rows.
BRPC_BALANCERS: dict[str, LoadBalancer] = {"rr": "round_robin", "random": "random", "la": "least_loaded"}
BRPC_OTHERS = ("wrr", "wr", "c_murmurhash", "c_md5", "c_ketama")


class CubeSettings(Settings):
    """`cube.yaml`: the servers of one model's tables, and how a client asks them."""

    model: str | None = Field(None, description="model of tables named without one (`table` instead of `model/table`)")
    tables: tuple[str, ...] = Field((), description="tables these servers hold; empty: any they are asked for")
    shards: tuple[tuple[str, ...], ...] = Field(
        description="for each shard, in order, its replicas: `host:port`, `[v6]:port` or `unix:/path`"
    )
    sharding: Literal["auto", "buckets", "modulo"] = Field(
        "auto",
        description="how feasigns are spread over shards; `auto` asks the servers, other values are checked",
    )
    timeout_ms: int = Field(200, ge=1, le=3_600_000, description="deadline of a call, retries included")
    connect_ms: int = Field(100, ge=1, le=600_000, description="deadline for opening a connection")
    retries: int = Field(3, ge=0, le=63, description="further attempts per shard, backup requests included")
    backup_ms: int = Field(
        50, ge=0, description="time without an answer after which another replica is asked too; 0: never"
    )
    load_balancer: LoadBalancer = Field("round_robin", description="which replica is asked first")
    eject_after: int = Field(3, ge=1, description="failures in a row after which a replica is left out")
    eject_ms: int = Field(
        1000, ge=1, le=600_000, description="how long it is left out at first; doubles while it keeps failing"
    )
    eject_max_ms: int = Field(30_000, ge=1, le=3_600_000, description="longest time it is left out")
    idle_connections: int = Field(64, ge=0, le=65_536, description="connections kept open per replica")
    cache_bytes: int = Field(0, ge=0, description="bytes of memory for frequently requested rows; 0: no cache")
    refresh_ms: int = Field(
        1000, ge=1, le=3_600_000, description="with a cache: how long a newly activated version may go unnoticed"
    )
    token_file: str | None = Field(None, description="file with the servers' secret; relative to this file")
    tls: TlsSettings | None = Field(
        None, description="authority of the servers' certificates and, if they require one, our own; default: no TLS"
    )
    on_failure: OnFailure = Field(
        "error", description="when a shard does not answer: `error`, or `degrade` to zeros, marked and counted"
    )

    @field_validator("shards")
    @classmethod
    def _check_shards(cls, shards: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        if not 1 <= len(shards) <= 4096:
            raise ValueError(f"expected 1 to 4096 shards, found {len(shards)}")
        for number, replicas in enumerate(shards):
            if not 1 <= len(replicas) <= 64:
                raise ValueError(f"shard {number} has {len(replicas)} replicas, expected 1 to 64")
            if len(set(replicas)) < len(replicas):
                raise ValueError(f"shard {number} names a replica twice")
        return shards

    def token(self) -> str:
        return "" if self.token_file is None else read_token(Path(self.token_file))


def load_conf(path: str | Path, model: str | None = None) -> tuple[CubeSettings, ...]:
    """The clusters in a settings file, told apart by content: `cube.conf` is a JSON array. `model` is the one of table
    names that do not name theirs."""
    text = read_settings_file(path)
    if text.lstrip().startswith("["):
        return parse_cube_conf(text, str(path), model)
    loaded = apply_overrides(load_yaml(path), environ={})
    if model is not None:
        loaded.setdefault("model", model)
    if "tls" in loaded:
        loaded["tls"] = anchor(loaded["tls"], Path(path).parent)
    settings = parse_settings(CubeSettings, loaded, str(path))
    if settings.token_file is not None:
        settings = settings.model_copy(update={"token_file": str(Path(path).parent / settings.token_file)})
    return (settings,)


def parse_addresses(text: str, **settings: Any) -> CubeSettings:
    """`host:port,host:port;host:port`: commas between replicas, semicolons between shards."""
    shards = [[a.strip() for a in shard.split(",") if a.strip()] for shard in text.split(";") if shard.strip()]
    return parse_settings(CubeSettings, {"shards": shards, **settings}, "addresses")


def parse_cube_conf(text: str, source: str, model: str | None = None) -> tuple[CubeSettings, ...]:
    """Paddle's `cube.conf`. Entries for the same servers become one cluster with several tables."""
    try:
        entries = json.loads(text)
    except ValueError as e:
        raise ConfigError(f"{source}: not valid JSON: {e}") from None
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{source}: expected a list with one object per table")
    clusters: list[CubeSettings] = []
    for number, entry in enumerate(entries):
        cluster = _parse_entry(entry, f"{source}: entry {number}", model)
        for i, other in enumerate(clusters):
            if set(cluster.tables) & set(other.tables):
                raise ConfigError(f"{source}: entry {number}: dict_name {cluster.tables[0]!r} occurs twice")
            if cluster.model_copy(update={"tables": other.tables}) == other:
                clusters[i] = other.model_copy(update={"tables": other.tables + cluster.tables})
                break
        else:
            clusters.append(cluster)
    return tuple(clusters)


def _parse_entry(entry: Any, where: str, model: str | None) -> CubeSettings:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: expected an object, found {json.dumps(entry)[:40]}")
    name = _get(entry, "dict_name", str, where)
    where = f"{where} ({name})"
    parts = name.split("/")
    if len(parts) > 2 or not all(NAME.fullmatch(part) for part in parts):
        raise ConfigError(f"{where}: 'dict_name' is not a table name; expected table or model/table")
    shard, dup = _get(entry, "shard", int, where), _get(entry, "dup", int, where)
    timeout, retry = _get(entry, "timeout", int, where), _get(entry, "retry", int, where)
    backup = _get(entry, "backup_request", int, where)
    kind = _get(entry, "type", str, where)
    nodes = _get(entry, "nodes", list, where)
    if kind == "ipport_parallel":
        # Several channels to one server that holds everything: one shard here, since calls open connections as needed.
        shards = [_replicas(nodes[0], "ipport", f"{where}: nodes[0]")] if nodes else []
    elif kind in ("ipport", "ipport_list"):
        shards = [_replicas(node, kind, f"{where}: nodes[{i}]") for i, node in enumerate(nodes)]
        if len(shards) != shard:
            raise ConfigError(
                f"{where}: 'shard' is {shard} and 'nodes' has {len(shards)}; list one node per shard, in order"
            )
        for i, replicas in enumerate(shards):
            if len(replicas) != dup:
                console.warn(
                    f"{where}: 'dup' is {dup}, but nodes[{i}] lists {len(replicas)} replicas; the listed ones are used"
                )
    else:
        raise ConfigError(f"{where}: 'type' {kind!r} is none of ipport, ipport_list, ipport_parallel")
    for key in sorted(set(entry) - KEYS):
        console.warn(f"{where}: {key!r} is not a key of cube.conf and is ignored")
    settings = {
        "model": model,
        "tables": [name],
        "shards": shards,
        "timeout_ms": timeout,
        "retries": retry,
        "backup_ms": max(backup, 0),
        "load_balancer": _balancer(entry.get("load_balancer", "rr"), where),
    }
    return parse_settings(CubeSettings, settings, where)


KEYS = {"dict_name", "shard", "dup", "timeout", "retry", "backup_request", "type", "load_balancer", "nodes"}


def _get(entry: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    if key not in entry:
        raise ConfigError(f"{where}: {key!r} is required")
    value = entry[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        expected = {str: "text", int: "a whole number", list: "a list"}[kind]
        raise ConfigError(f"{where}: {key!r} is {json.dumps(value)[:40]}, expected {expected}")
    return value


def _replicas(node: Any, kind: str, where: str) -> Sequence[str]:
    if not isinstance(node, Mapping):
        raise ConfigError(f"{where}: expected an object, found {json.dumps(node)[:40]}")
    if kind == "ipport":
        return [f"{_get(node, 'ip', str, where)}:{_get(node, 'port', int, where)}"]
    listed = _get(node, "ipport_list", str, where)
    if not listed.startswith("list://"):
        raise ConfigError(f"{where}: 'ipport_list' is {listed!r}, expected list://host:port,host:port")
    return [address.strip() for address in listed.removeprefix("list://").split(",") if address.strip()]


def _balancer(name: Any, where: str) -> LoadBalancer:
    if name in BRPC_BALANCERS:
        return BRPC_BALANCERS[name]
    if name in BRPC_OTHERS:
        console.warn(f"{where}: load_balancer {name!r} is treated as rr")
        return "round_robin"
    raise ConfigError(f"{where}: 'load_balancer' {name!r} is none of {', '.join((*BRPC_BALANCERS, *BRPC_OTHERS))}")
