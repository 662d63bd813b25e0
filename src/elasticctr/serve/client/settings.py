"""Settings of a prediction client: endpoints, shares, deadlines, retries. Plain values, also filled in by readers of
other systems' files.

    one = VariantSettings("a", ("http://10.0.0.1:8500", "http://10.0.0.2:8500"))
    PredictClientSettings(variants=(one,), model="ctr")
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from elasticctr.errors import ConfigError, NotFound

Balancer = Literal["round_robin", "least_loaded", "random"]
DEFAULT_PORT = 8500


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """One server: `http://host:port`, `https://host:port`, optionally with a path prefix, or plain `host:port`."""

    url: str
    weight: float = 1.0  # its share among the endpoints of its variant

    def __post_init__(self) -> None:
        _check_weight(self.weight, f"endpoint {self.url!r}")
        parse_url(self.url)


@dataclass(frozen=True, slots=True)
class VariantSettings:
    """Equivalent servers and their share of the requests. A model or version given here overrides the client's and the
    call's."""

    name: str
    endpoints: tuple[EndpointSettings, ...]
    weight: float = 1.0
    model: str | None = None
    version: int | None = None

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ConfigError(f"variant {self.name!r} has no endpoints; give it at least one URL")
        _check_weight(self.weight, f"variant {self.name!r}")
        if not any(endpoint.weight > 0 for endpoint in self.endpoints):
            raise ConfigError(f"variant {self.name!r}: every endpoint has weight 0; at least one must be above 0")


@dataclass(frozen=True, slots=True)
class PredictClientSettings:
    variants: tuple[VariantSettings, ...]
    model: str | None = None  # for calls that name none
    sticky: str | None = None  # the request field whose value decides the variant; None: drawn for each call
    seed: int = 0  # another seed splits sticky values differently
    balancer: Balancer = "round_robin"  # which endpoint of a variant is asked first
    timeout_ms: float = 1000.0  # for a whole call, including retries
    connect_ms: float = 300.0  # to open one connection
    retries: int = 2  # further attempts of a call, on another endpoint if there is one; hedges included
    backoff_ms: float = 10.0  # before the first retry; doubles, and is randomly shortened by up to half
    retry_budget: float = 0.2  # retries and hedges per call over time, so that retries do not multiply an overload
    hedge_ms: float = 0.0  # time without an answer after which another endpoint is asked too; 0: never
    eject_after: int = 3  # failures in a row after which an endpoint is left out
    eject_ms: float = 1000.0  # how long at first; doubles while it keeps failing
    eject_max_ms: float = 30_000.0
    idle_connections: int = 64  # kept open per endpoint
    token: str | None = None  # sent as `Authorization: Bearer`
    ca_file: str | None = None  # authorities to trust instead of the system's
    cert_file: str | None = None  # certificate for servers that require one, with its key
    key_file: str | None = None

    def __post_init__(self) -> None:
        if not self.variants:
            raise ConfigError("a prediction client needs an endpoint, for example http://127.0.0.1:8500")
        names = [variant.name for variant in self.variants]
        if len(set(names)) < len(names):
            raise ConfigError(f"variants must have different names, not {', '.join(names)}")
        if not any(variant.weight > 0 for variant in self.variants):
            raise ConfigError("every variant has weight 0; at least one must be above 0")
        if self.balancer not in get_args(Balancer):
            raise ConfigError(f"balancer must be one of {', '.join(get_args(Balancer))}, not {self.balancer!r}")
        for name in ("timeout_ms", "connect_ms", "eject_ms", "eject_max_ms"):
            _check_range(name, getattr(self, name), 0.001, 86_400_000)
        for name in ("backoff_ms", "hedge_ms", "retry_budget"):
            _check_range(name, getattr(self, name), 0, 86_400_000)
        for name, low, high in (("retries", 0, 63), ("eject_after", 1, 1_000_000), ("idle_connections", 0, 65_536)):
            _check_range(name, getattr(self, name), low, high)
        if self.token is not None and not self.token.isprintable():
            raise ConfigError("the token has characters that are not allowed in a header")
        if self.ca_file is not None and not Path(self.ca_file).is_file():
            raise NotFound(f"{self.ca_file}: no such file; ca_file must name the authorities to trust")
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError("a certificate and its key go together: give cert_file and key_file, or neither")


def make_settings(
    endpoints: str | Iterable[str | EndpointSettings] | PredictClientSettings,
    variants: Iterable[VariantSettings],
    overrides: dict[str, object],
) -> PredictClientSettings:
    """Settings from the arguments of `PredictClient`. `overrides` that are None change nothing."""
    given = {name: value for name, value in overrides.items() if value is not None}
    if isinstance(endpoints, PredictClientSettings):
        base = {field.name: getattr(endpoints, field.name) for field in fields(endpoints)}
        return PredictClientSettings(**(base | given))
    several = tuple(variants)
    plain = [endpoints] if isinstance(endpoints, str) else list(endpoints)
    if plain and several:
        raise ConfigError("give endpoints or variants, not both; variants have their own endpoints")
    if plain:
        made = tuple(e if isinstance(e, EndpointSettings) else EndpointSettings(e) for e in plain)
        several = (VariantSettings("", made),)
    return PredictClientSettings(variants=several, **given)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    is_tls: bool
    prefix: str  # of paths, without a trailing slash

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_url(url: str) -> Address:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as e:
        raise ConfigError(f"endpoint {url!r}: {e}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"endpoint {url!r} is not a URL such as http://host:{DEFAULT_PORT}")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"endpoint {url!r} has characters that are not allowed in a URL")
    if port is None:
        port = {"http": 80, "https": 443}[parts.scheme] if "://" in url else DEFAULT_PORT
    return Address(parts.hostname, port, parts.scheme == "https", parts.path.rstrip("/"))


def _check_weight(weight: float, what: str) -> None:
    if not (math.isfinite(weight) and weight >= 0):
        raise ConfigError(f"{what}: a weight must be 0 or more, not {weight}")


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name} must be between {low:g} and {high:g}, not {value:g}")
