"""The interface of engines: start roles, keep them running, report their states, stop them.

An engine knows processes and machines but nothing of training. It starts `elasticctr coordinator|pserver|trainer` with
the given flags and environment; roles find each other through the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

RoleKind = Literal["coordinator", "pserver", "standby", "trainer"]


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """One process to run."""

    kind: RoleKind
    index: int  # among roles of its kind
    arguments: Sequence[str]  # after `elasticctr`
    environment: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 1.0
    memory_mib: int | None = None
    restart: bool = True  # restarted if it ends with a status other than 0, up to the job's max_restarts

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.index}"


@dataclass(frozen=True, slots=True)
class RoleState:
    """The state of a role's process."""

    name: str
    phase: Literal["starting", "running", "restarting", "ended", "failed"]
    host: str = ""
    pid: int | None = None
    restarts: int = 0
    exit_status: int | None = None
    log: str = ""  # path of its output
    reason: str = ""  # how it last ended


class Engine(Protocol):
    name: str

    def start(self, roles: Sequence[RoleSpec], *, log_dir: str, max_restarts: int) -> None:
        """Starts every role, or none: checks ports, counts and resources before the first start."""
        ...

    def states(self) -> list[RoleState]: ...

    def add(self, role: RoleSpec) -> None:
        """Adds a role while the job runs. FailedPrecondition if the engine cannot."""
        ...

    def remove(self, name: str) -> None:
        """Ends a role permanently (SIGTERM, then SIGKILL after a grace period)."""
        ...

    def wait(self, is_over: Callable[[], bool], poll_s: float = 0.2) -> list[RoleState]:
        """Watches and restarts until `is_over` returns True or a role has failed for good. Returns the last states."""
        ...

    def stop(self, grace_s: float = 10.0) -> None:
        """Ends everything it started, including children."""
        ...
