"""Paddle's environment contract: variables assign a process its role.

| variable | meaning |
| --- | --- |
| TRAINING_ROLE, PADDLE_TRAINING_ROLE | PSERVER or TRAINER; without either this process has no role |
| PADDLE_PSERVERS_IP_PORT_LIST | host:port of every pserver; or PADDLE_PSERVERS (hosts) with PADDLE_PORT |
| PADDLE_TRAINERS_NUM, PADDLE_PSERVERS_NUM | their number; PADDLE_TRAINER_ENDPOINTS and PADDLE_TRAINERS list them |
| POD_IP, PADDLE_CURRENT_IP, PADDLE_PORT | which of the pservers this one is |
| PADDLE_CURRENT_ENDPOINT | the same in one variable, for either role |
| PADDLE_TRAINER_ID | which of the trainers this one is |
| CPU_NUM | threads of a trainer |
| PADDLE_IS_LOCAL | 1: no role; train in this process |
| ELASTICCTR_COORDINATOR | where the coordinator is; default: at the first pserver's host, its port + 100 |

Contradictions are refused with an error that names the variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from elasticctr.errors import ConfigError

COORDINATOR_PORT_OFFSET = 100
_ROLES: dict[str, Literal["pserver", "trainer"]] = {"PSERVER": "pserver", "TRAINER": "trainer"}


@dataclass(frozen=True, slots=True)
class Assigned:
    """The role of this process in a job."""

    role: Literal["pserver", "trainer"]
    index: int
    trainers: int
    pservers: tuple[str, ...]  # host:port each; none for collective training
    coordinator: str  # URL, or a run directory; empty without pservers
    trainer_endpoints: tuple[str, ...] = ()
    threads: int | None = None

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def endpoint(self) -> tuple[str, int]:
        """The host:port of this pserver."""
        return split_endpoint(self.pservers[self.index], "PADDLE_PSERVERS_IP_PORT_LIST")

    @property
    def leads(self) -> bool:
        """Whether this role also runs the coordinator."""
        return self.role == "pserver" and self.index == 0


def read_environment(environ: Mapping[str, str]) -> Assigned | None:
    """The role that `environ` assigns to this process; None if it assigns none."""
    role = _read_role(environ)
    if role is None or environ.get("PADDLE_IS_LOCAL", "").strip() == "1":
        return None
    pservers = _read_pservers(environ)
    endpoints = _list(environ, "PADDLE_TRAINER_ENDPOINTS")
    trainers = _agreed_count(
        environ, "PADDLE_TRAINERS_NUM", {"PADDLE_TRAINER_ENDPOINTS": endpoints, "PADDLE_TRAINERS": _hosts(environ)}
    )
    if trainers is None:
        raise ConfigError(f"TRAINING_ROLE is {role.upper()}, but PADDLE_TRAINERS_NUM is not set")
    if role == "pserver" and not pservers:
        raise ConfigError("TRAINING_ROLE is PSERVER, but PADDLE_PSERVERS_IP_PORT_LIST lists no pserver")
    index = _find_pserver(environ, pservers) if role == "pserver" else _find_trainer(environ, trainers, endpoints)
    threads = _integer(environ, "CPU_NUM", 1, 4096)
    return Assigned(role, index, trainers, pservers, _read_coordinator(environ, pservers), endpoints, threads)


def split_endpoint(text: str, variable: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{variable}: {text!r} is not host:port with a port from 1 to 65535")
    return host, int(port)


def _read_role(environ: Mapping[str, str]) -> Literal["pserver", "trainer"] | None:
    given = {n: environ[n].strip() for n in ("TRAINING_ROLE", "PADDLE_TRAINING_ROLE") if environ.get(n, "").strip()}
    if not given:
        return None
    if len({text.upper() for text in given.values()}) > 1:
        raise ConfigError(
            f"TRAINING_ROLE is {given['TRAINING_ROLE']} but PADDLE_TRAINING_ROLE is {given['PADDLE_TRAINING_ROLE']}; "
            "set only one"
        )
    name, text = next(iter(given.items()))
    if text.upper() not in _ROLES:
        raise ConfigError(f"{name} is {text!r}; it must be PSERVER or TRAINER")
    return _ROLES[text.upper()]


def _read_pservers(environ: Mapping[str, str]) -> tuple[str, ...]:
    pservers = _list(environ, "PADDLE_PSERVERS_IP_PORT_LIST")
    if not pservers:
        hosts, port = _list(environ, "PADDLE_PSERVERS"), _integer(environ, "PADDLE_PORT", 1, 65535)
        if hosts and port is None:
            raise ConfigError("PADDLE_PSERVERS lists hosts without ports, but PADDLE_PORT is not set")
        pservers = tuple(host if ":" in host else f"{host}:{port}" for host in hosts)
    for endpoint in pservers:
        split_endpoint(endpoint, "PADDLE_PSERVERS_IP_PORT_LIST")
    if len(set(pservers)) < len(pservers):
        raise ConfigError("PADDLE_PSERVERS_IP_PORT_LIST lists a pserver twice")
    _agreed_count(environ, "PADDLE_PSERVERS_NUM", {"PADDLE_PSERVERS_IP_PORT_LIST": pservers})
    return pservers


def _find_pserver(environ: Mapping[str, str], pservers: tuple[str, ...]) -> int:
    own = environ.get("PADDLE_CURRENT_ENDPOINT", "").strip()
    host = _agreed_host(environ)
    port = _integer(environ, "PADDLE_PORT", 1, 65535)
    if not own and host:
        here = [e for e in pservers if e.rpartition(":")[0] == host]
        if port is not None and (f"{host}:{port}" in pservers or len(here) != 1):
            own = f"{host}:{port}"
        elif len(here) == 1:
            own = here[0]
        else:
            raise ConfigError(
                f"POD_IP is {host}, which has {len(here)} pservers in PADDLE_PSERVERS_IP_PORT_LIST; "
                "set PADDLE_PORT to choose one"
            )
    if not own:
        raise ConfigError("TRAINING_ROLE is PSERVER; set POD_IP and PADDLE_PORT to say which pserver this is")
    if own not in pservers:
        raise ConfigError(f"this pserver is {own}, which is not in PADDLE_PSERVERS_IP_PORT_LIST ({','.join(pservers)})")
    return pservers.index(own)


def _find_trainer(environ: Mapping[str, str], trainers: int, endpoints: tuple[str, ...]) -> int:
    index = _integer(environ, "PADDLE_TRAINER_ID", 0, 1 << 31)
    own = environ.get("PADDLE_CURRENT_ENDPOINT", "").strip()
    if index is None and own in endpoints:
        index = endpoints.index(own)
    if index is None and trainers == 1:
        index = 0
    if index is None:
        raise ConfigError("TRAINING_ROLE is TRAINER, but PADDLE_TRAINER_ID is not set")
    if index >= trainers:
        raise ConfigError(f"PADDLE_TRAINER_ID is {index}, but there are only {trainers} trainers, counted from 0")
    if own and endpoints and endpoints[index] != own:
        raise ConfigError(
            f"PADDLE_TRAINER_ID is {index}, whose endpoint is {endpoints[index]}, but PADDLE_CURRENT_ENDPOINT is {own}"
        )
    return index


def _read_coordinator(environ: Mapping[str, str], pservers: tuple[str, ...]) -> str:
    given = environ.get("ELASTICCTR_COORDINATOR", "").strip()
    if given:
        is_whole = given.startswith(("http://", "https://")) or "/" in given
        if not is_whole:
            split_endpoint(given, "ELASTICCTR_COORDINATOR")
        return given if is_whole else f"http://{given}"
    if not pservers:
        return ""
    host, port = split_endpoint(pservers[0], "PADDLE_PSERVERS_IP_PORT_LIST")
    port += COORDINATOR_PORT_OFFSET
    if port > 65535:
        raise ConfigError(f"the coordinator's port would be {port}; set ELASTICCTR_COORDINATOR=host:port to another")
    if f"{host}:{port}" in pservers:
        raise ConfigError(f"a pserver has the coordinator's {host}:{port}; choose another with ELASTICCTR_COORDINATOR")
    return f"http://{host}:{port}"


def _agreed_host(environ: Mapping[str, str]) -> str:
    """The host in POD_IP or PADDLE_CURRENT_IP, which mean the same."""
    pod, current = environ.get("POD_IP", "").strip(), environ.get("PADDLE_CURRENT_IP", "").strip()
    if pod and current and pod != current:
        raise ConfigError(f"POD_IP is {pod} but PADDLE_CURRENT_IP is {current}; set only one")
    return pod or current


def _agreed_count(environ: Mapping[str, str], variable: str, lists: Mapping[str, tuple[str, ...]]) -> int | None:
    count = _integer(environ, variable, 1, 10_000)
    for name, items in lists.items():
        if items and count is not None and len(items) != count:
            raise ConfigError(f"{variable} is {count}, but {name} has {len(items)} entries")
        if items and count is None:
            count = len(items)
    return count


def _hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    """PADDLE_TRAINERS: hosts or, on some platforms, their number, as in PADDLE_TRAINERS_NUM."""
    return () if environ.get("PADDLE_TRAINERS", "").strip().isdigit() else _list(environ, "PADDLE_TRAINERS")


def _list(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in environ.get(name, "").split(",") if item.strip())


def _integer(environ: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or not low <= int(text) <= high:
        raise ConfigError(f"{name} is {text!r}; it must be a whole number from {low} to {high}")
    return int(text)
