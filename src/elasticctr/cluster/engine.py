"""What an engine is asked for: start these roles, keep them running, tell how they are, stop them.

An engine knows processes and machines and nothing of training. It starts `elasticctr coordinator|pserver|trainer` with
the flags and environment it is given; roles find each other through the coordinator.
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
    index: int  # among its kind
    arguments: Sequence[str]  # after `elasticctr`
    environment: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 1.0
    memory_mib: int | None = None
    restart: bool = True  # started again when it ends with anything but 0, up to the job's max_restarts

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.index}"


@dataclass(frozen=True, slots=True)
class RoleState:
    """How a role's process is."""

    name: str
    phase: Literal["starting", "running", "restarting", "ended", "failed"]
    host: str = ""
    pid: int | None = None
    restarts: int = 0
    exit_status: int | None = None
    log: str = ""  # path of what it printed
    reason: str = ""  # how it ended last, in words


class Engine(Protocol):
    name: str

    def start(self, roles: Sequence[RoleSpec], *, log_dir: str, max_restarts: int) -> None:
        """Starts every role, or none: ports, counts or resources that do not fit are refused before the first."""
        ...

    def states(self) -> list[RoleState]: ...

    def add(self, role: RoleSpec) -> None:
        """One more role while the job runs. FailedPrecondition where the engine cannot."""
        ...

    def remove(self, name: str) -> None:
        """Ends one role for good (SIGTERM, then SIGKILL after a grace period)."""
        ...

    def wait(self, is_over: Callable[[], bool], poll_s: float = 0.2) -> list[RoleState]:
        """Watches and restarts until `is_over` says so or a role failed for good. Returns the last states."""
        ...

    def stop(self, grace_s: float = 10.0) -> None:
        """Ends everything it started, children too. Nothing is left behind."""
        ...
