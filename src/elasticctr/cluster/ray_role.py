"""The actor that supervises a role's process on a Ray node.

Ray restarts the actor, on another node if its own is lost; the actor restarts the process. The process's output is
kept beside the actor and handed over piece by piece, so that the logs of all nodes reach the run directory.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ray
import ray.util

from elasticctr.cluster.engine import RoleSpec, RoleState
from elasticctr.cluster.supervised import ELASTICCTR, Supervised, prepare_log

PIECE = 256 << 10


@dataclass(frozen=True, slots=True)
class News:
    """An actor's report on its role."""

    incarnation: str  # of the actor; changes when Ray restarts it
    state: RoleState  # its restarts count only this incarnation
    offset: int  # in the log, after `printed`
    printed: bytes
    is_all: bool  # whether `printed` reaches the end of the log


class RoleActor:
    """Made by `ray.remote`. All its methods run in the thread that started the process."""

    def __init__(self, role: RoleSpec, max_restarts: int, command: Sequence[str] | None) -> None:
        # The address that others use to reach the process: this node's, as known in the cluster.
        environment = {"ELASTICCTR_ADVERTISE": ray.util.get_node_ip_address(), **role.environment}
        self._first = 1 if ray.get_runtime_context().was_current_actor_reconstructed else 0
        self._incarnation = secrets.token_hex(4)
        self._directory = Path(tempfile.mkdtemp(prefix="elasticctr-role-"))
        self._log = prepare_log(self._directory, role.name)
        self._supervised = Supervised(
            replace(role, environment=environment),
            log=self._log,
            max_restarts=max_restarts + self._first,
            command=ELASTICCTR if command is None else command,
            restarts=self._first,
        )
        self._supervised.start()

    def poll(self, incarnation: str, offset: int) -> News:
        """`offset` is how much of this incarnation's log the caller already has."""
        state = self._supervised.poll()
        start = offset if incarnation == self._incarnation else 0
        with self._log.open("rb") as log:
            log.seek(start)
            printed = log.read(PIECE)
        is_all = len(printed) < PIECE
        state = replace(state, host=ray.util.get_node_ip_address(), restarts=state.restarts - self._first, log="")
        return News(self._incarnation, state, start + len(printed), printed, is_all)

    def ask_to_end(self) -> None:
        self._supervised.ask_to_end()

    def end(self, grace_s: float) -> None:
        """Ends the process. Returns when it is gone."""
        self._supervised.ask_to_end()
        deadline_s = time.monotonic() + grace_s
        while self._supervised.poll().phase == "running" and time.monotonic() < deadline_s:
            time.sleep(0.02)
        self._supervised.kill()

    def clear(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
